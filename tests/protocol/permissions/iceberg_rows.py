"""The permissions that the routes of Iceberg's protocol need, once for their two paths.

Every row that changes something can be sent with a key, and then it is answered from its receipt when it
is sent again. `KEYED_ROWS` are those.
"""

from __future__ import annotations

from typing import Any, Final

from tests.iceberg_requests import SCHEMA, new_view, with_properties, with_version
from tests.iceberg_requests import new_table as table_body
from tests.protocol.permissions.matrix import (
    AWAY,
    HOME,
    ROOT,
    Preparation,
    Request,
    Row,
    browse,
    manage,
    read,
    request,
    write,
)
from tests.protocol.permissions.objects import Objects, new_name

NAMESPACES: Final = "/iceberg/v1/namespaces"
NAMESPACE: Final = f"{NAMESPACES}/{{namespace}}"
TABLE: Final = f"{NAMESPACE}/tables/{{table}}"
VIEW: Final = f"{NAMESPACE}/views/{{view}}"
METRICS: Final = {
    "report-type": "commit-report",
    "table-name": "t",
    "snapshot-id": 1,
    "sequence-number": 1,
    "operation": "append",
    "metrics": {},
}


def home(body: Any = None, **options: Any) -> Preparation:
    return lambda objects: request(body, parameters={"namespace": HOME}, **options)


def still_table(body: Any = None, **more: str) -> Preparation:
    return lambda objects: request(
        body, parameters={"namespace": HOME, "table": objects.still_iceberg_table, **more}
    )


def fresh_table(body: Any = None) -> Preparation:
    return lambda objects: request(body, parameters={"namespace": HOME, "table": objects.iceberg_table(HOME)})


def still_view(body: Any = None) -> Preparation:
    return lambda objects: request(body, parameters={"namespace": HOME, "view": objects.still_iceberg_view})


def fresh_view(body: Any = None) -> Preparation:
    return lambda objects: request(body, parameters={"namespace": HOME, "view": objects.iceberg_view(HOME)})


def new_table(**fields: Any) -> Preparation:
    return lambda objects: request({**table_body(new_name()), **fields}, parameters={"namespace": HOME})


def renamed(source: str) -> dict[str, Any]:
    return {
        "source": {"namespace": [HOME], "name": source},
        "destination": {"namespace": [AWAY], "name": new_name()},
    }


def commit_two(objects: Objects) -> Request:
    changes = [
        {"identifier": {"namespace": [namespace], "name": objects.iceberg_table(namespace)}}
        | with_properties(a="b")
        for namespace in (HOME, AWAY)
    ]
    return request({"table-changes": changes})


def create_staged(objects: Objects) -> Request:
    updates = [
        {"action": "assign-uuid", "uuid": "8f3b0c5e-2f63-4c0a-9f3c-6f1d2b7f0a11"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    return request(body, parameters={"namespace": HOME, "table": new_name()})


def registered(kind: str) -> Preparation:
    return lambda objects: request(
        {"name": new_name(), "metadata-location": objects.left_metadata(kind)},
        parameters={"namespace": HOME},
    )


def overwritten(objects: Objects) -> Request:
    body = {
        "name": objects.iceberg_table(HOME),
        "metadata-location": objects.left_metadata("tables"),
        "overwrite": True,
    }
    return request(body, parameters={"namespace": HOME})


def plan(objects: Objects) -> Request:
    table = {"namespace": HOME, "table": objects.still_iceberg_table}
    made = objects.ask("POST", TABLE.format(**table) + "/plan", {})
    return request(parameters={**table, "plan-id": made["plan-id"]})


KEYED_ROWS: Final = (
    Row(
        f"POST {NAMESPACES}",
        (manage(HOME),),
        lambda objects: request({"namespace": [HOME, new_name()]}),
    ),
    Row(
        f"DELETE {NAMESPACE}",
        (manage(HOME),),
        lambda objects: request(parameters={"namespace": objects.namespace(HOME, "\x1f")}),
    ),
    Row(f"POST {NAMESPACE}/properties", (manage(HOME),), home({"updates": {"a": "b"}})),
    Row(f"POST {NAMESPACE}/tables", (write(HOME),), new_table()),
    Row(f"POST {NAMESPACE}/tables", (write(HOME),), new_table(**{"stage-create": True}), "that are staged"),
    Row(f"POST {TABLE}", (write(HOME),), fresh_table(with_properties(a="b"))),
    Row(f"POST {TABLE}", (write(HOME),), create_staged, "that was staged"),
    Row(f"DELETE {TABLE}", (manage(HOME),), fresh_table()),
    Row(
        "POST /iceberg/v1/tables/rename",
        (manage(HOME), write(AWAY)),
        lambda objects: request(renamed(objects.iceberg_table(HOME))),
    ),
    Row("POST /iceberg/v1/transactions/commit", (write(HOME), write(AWAY)), commit_two),
    Row(f"POST {NAMESPACE}/register", (write(HOME),), registered("tables")),
    Row(f"POST {NAMESPACE}/register", (manage(HOME),), overwritten, "that replaces a table"),
    Row(f"POST {TABLE}/unregister", (manage(HOME),), fresh_table()),
    Row(f"POST {NAMESPACE}/register-view", (write(HOME),), registered("views")),
    Row(
        f"POST {NAMESPACE}/views",
        (write(HOME),),
        lambda objects: request(new_view(new_name()), parameters={"namespace": HOME}),
    ),
    Row(f"POST {VIEW}", (write(HOME),), fresh_view(with_version("SELECT 2"))),
    Row(f"DELETE {VIEW}", (manage(HOME),), fresh_view()),
    Row(
        "POST /iceberg/v1/views/rename",
        (manage(HOME), write(AWAY)),
        lambda objects: request(renamed(objects.iceberg_view(HOME))),
    ),
)

OTHER_ROWS: Final = (
    Row(f"GET {NAMESPACES}", (browse(ROOT),), lambda objects: request()),
    Row(
        f"GET {NAMESPACES}",
        (read(HOME),),
        lambda objects: request(params={"parent": HOME}),
        "below another",
    ),
    Row(f"GET {NAMESPACE}", (read(HOME),), home()),
    Row(f"HEAD {NAMESPACE}", (read(HOME),), home()),
    Row(f"GET {NAMESPACE}/tables", (read(HOME),), home()),
    Row(f"GET {TABLE}", (read(HOME),), still_table()),
    Row(f"HEAD {TABLE}", (read(HOME),), still_table()),
    Row(f"GET {NAMESPACE}/views", (read(HOME),), home()),
    Row(f"GET {VIEW}", (read(HOME),), still_view()),
    Row(f"HEAD {VIEW}", (read(HOME),), still_view()),
    Row(f"GET {NAMESPACE}/functions", (read(HOME),), home()),
    Row(
        f"GET {NAMESPACE}/functions/{{function}}",
        (read(HOME),),
        lambda objects: request(parameters={"namespace": HOME, "function": objects.function()}),
    ),
    Row(f"POST {TABLE}/plan", (read(HOME),), still_table({})),
    Row(f"GET {TABLE}/plan/{{plan-id}}", (read(HOME),), plan),
    Row(f"DELETE {TABLE}/plan/{{plan-id}}", (read(HOME),), plan),
    # A small table has no further tasks to fetch.
    Row(f"POST {TABLE}/tasks", (read(HOME),), still_table({"plan-task": "none"}), status=404),
    Row(f"GET {TABLE}/credentials", (read(HOME),), still_table()),
    Row(f"POST {TABLE}/metrics", (read(HOME),), still_table(METRICS)),
)


def signed(method: str) -> Preparation:
    def prepare(objects: Objects) -> Request:
        name = objects.still_iceberg_table
        location = objects.ask("GET", f"{NAMESPACES}/{HOME}/tables/{name}")["metadata"]["location"]
        uri = location.replace("s3://", f"{objects.object_store}/")
        body = {"region": "us-east-1", "method": method, "uri": f"{uri}/data/x", "headers": {}}
        return request(body, parameters={"namespace": HOME, "table": name})

    return prepare


SIGNED_ROWS: Final = (
    Row(f"POST {TABLE}/sign", (read(HOME),), signed("GET"), "of a read"),
    Row(f"POST {TABLE}/sign", (write(HOME),), signed("PUT"), "of a write"),
)
"""These are served where the warehouse is an object store."""

ICEBERG_ROWS: Final = (*KEYED_ROWS, *OTHER_ROWS)
