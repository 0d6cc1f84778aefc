"""Routes of server-side scan planning."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.responses import Response

from tidemill.errors import InvalidInput
from tidemill.iceberg.errors import PlanNotFound, PlanTaskNotFound
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning.scans import Plan
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.iceberg.credentials import storage_credentials
from tidemill.protocols.iceberg.identifiers import table_of
from tidemill.protocols.iceberg.routing import both
from tidemill.protocols.iceberg.scan_mapping import (
    AskedScan,
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
    asked = read_scan(read_object(call.body))
    plan = _plan(call, entry, asked)
    return json_response({"plan-id": plan_id(entry, asked, plan), **_completed(call, entry, asked, plan)})


def fetch_planning_result(call: Call) -> Response:
    entry = _load(call)
    asked = _asked(call, entry)
    try:
        plan = _plan(call, entry, asked)
    except InvalidInput as error:
        raise PlanNotFound(call.parameters["plan-id"]) from error
    return json_response(_completed(call, entry, asked, plan))


def cancel_planning(call: Call) -> Response:
    """Nothing is kept for a plan, so that there is nothing to let go."""
    _asked(call, _load(call))
    return Response(status_code=204)


def fetch_scan_tasks(call: Call) -> Response:
    entry = _load(call)
    token = read_object(call.body).required_text("plan-task")
    found = read_plan_task(entry, token)
    if found is None:
        raise PlanTaskNotFound(token)
    asked, first = found
    try:
        plan = _plan(call, entry, asked)
    except InvalidInput as error:
        # The snapshot may have been expired since.
        raise PlanTaskNotFound(token) from error
    return json_response(tasks_json(asked, plan, first))


def _load(call: Call) -> Entry:
    return call.operations.iceberg_tables.load(call.caller, table_of(call))


def _asked(call: Call, entry: Entry) -> AskedScan:
    asked = read_plan_id(entry, call.parameters["plan-id"])
    if asked is None:
        raise PlanNotFound(call.parameters["plan-id"])
    return asked


def _plan(call: Call, entry: Entry, asked: AskedScan) -> Plan:
    return call.operations.scan_planner.plan(entry, asked.request)


def _completed(call: Call, entry: Entry, asked: AskedScan, plan: Plan) -> dict[str, Any]:
    answer = {"status": "completed", **tasks_json(asked, plan)}
    if rest := plan_tasks(entry, asked, plan):
        answer["plan-tasks"] = rest
    location = orjson.loads(entry.metadata)["location"]
    options = call.operations.iceberg_access.storage_options(call.caller, entry.ident, entry.location)
    if credentials := storage_credentials(location, options):
        answer["storage-credentials"] = credentials
    return answer


ROUTES: Final = (
    *both("POST", f"{TABLE}/plan", plan_table_scan),
    *both("GET", f"{TABLE}/plan/{{plan-id}}", fetch_planning_result),
    *both("DELETE", f"{TABLE}/plan/{{plan-id}}", cancel_planning),
    *both("POST", f"{TABLE}/tasks", fetch_scan_tasks),
)
