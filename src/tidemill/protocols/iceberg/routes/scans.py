"""Routes of server-side scan planning."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.responses import Response

from tidemill.errors import InvalidInput
from tidemill.iceberg.errors import PlanNotFound, PlanTaskNotFound
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning.scans import Plan
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.iceberg.mapping import table_of
from tidemill.protocols.iceberg.parameters import route_pair
from tidemill.protocols.iceberg.responses import storage_credentials
from tidemill.protocols.iceberg.scan_mapping import (
    RequestedScan,
    plan_id,
    plan_tasks,
    read_plan_id,
    read_plan_task,
    read_scan,
    tasks_json,
)

TABLE: Final = "/namespaces/{namespace}/tables/{table}"


def plan_table_scan(call: Call) -> Response:
    entry = _load(call)
    scan = read_scan(read_object(call.body))
    plan = _plan(call, entry, scan)
    return json_response({"plan-id": plan_id(entry, scan, plan), **_completed(call, entry, scan, plan)})


def fetch_planning_result(call: Call) -> Response:
    entry = _load(call)
    scan = _requested_scan(call, entry)
    try:
        plan = _plan(call, entry, scan)
    except InvalidInput as error:
        raise PlanNotFound(call.parameters["plan-id"]) from error
    return json_response(_completed(call, entry, scan, plan))


def cancel_planning(call: Call) -> Response:
    """Checks the plan id only: the server keeps no state for a plan, so there is nothing to cancel."""
    _requested_scan(call, _load(call))
    return Response(status_code=204)


def fetch_scan_tasks(call: Call) -> Response:
    entry = _load(call)
    token = read_object(call.body).required_text("plan-task")
    found = read_plan_task(entry, token)
    if found is None:
        raise PlanTaskNotFound(token)
    scan, first = found
    try:
        plan = _plan(call, entry, scan)
    except InvalidInput as error:
        # The snapshot may have expired since.
        raise PlanTaskNotFound(token) from error
    return json_response(tasks_json(scan, plan, first))


def _load(call: Call) -> Entry:
    return call.operations.iceberg_tables.load(call.caller, table_of(call))


def _requested_scan(call: Call, entry: Entry) -> RequestedScan:
    scan = read_plan_id(entry, call.parameters["plan-id"])
    if scan is None:
        raise PlanNotFound(call.parameters["plan-id"])
    return scan


def _plan(call: Call, entry: Entry, scan: RequestedScan) -> Plan:
    return call.operations.scan_planner.plan(entry, scan.request)


def _completed(call: Call, entry: Entry, scan: RequestedScan, plan: Plan) -> dict[str, Any]:
    body = {"status": "completed", **tasks_json(scan, plan)}
    if remaining := plan_tasks(entry, scan, plan):
        body["plan-tasks"] = remaining
    location = orjson.loads(entry.metadata)["location"]
    options = call.operations.iceberg_access.storage_options(call.caller, entry.ident, entry.location)
    if credentials := storage_credentials(location, options):
        body["storage-credentials"] = credentials
    return body


ROUTES: Final = (
    *route_pair("POST", f"{TABLE}/plan", plan_table_scan, is_reading=True),
    *route_pair("GET", f"{TABLE}/plan/{{plan-id}}", fetch_planning_result),
    *route_pair("DELETE", f"{TABLE}/plan/{{plan-id}}", cancel_planning, is_reading=True),
    *route_pair("POST", f"{TABLE}/tasks", fetch_scan_tasks, is_reading=True),
)
