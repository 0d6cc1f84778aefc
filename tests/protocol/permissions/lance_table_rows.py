"""The permissions that the Lance protocol's routes of namespaces, tables and versions need."""

from __future__ import annotations

from typing import Any, Final

from tests.protocol.permissions.lance_requests import fresh, home, new, nothing, still
from tests.protocol.permissions.matrix import (
    AWAY,
    HOME,
    ROOT,
    SYSTEM,
    TABLE,
    Preparation,
    Request,
    Row,
    browse,
    manage,
    on,
    read,
    request,
    write,
)
from tests.protocol.permissions.objects import Objects, ident_of, new_name
from tests.protocol.wire import commit_body, some_rows, stream

ROWS: Final = stream(some_rows(20))
QUERY: Final = {"k": 10, "vector": {}}

NAMESPACE_ROWS: Final = (
    Row("POST /v1/namespace/{id}/create", (manage(HOME),), new({})),
    Row(
        "POST /v1/namespace/{id}/create",
        (manage(HOME),),
        lambda objects: on(objects.namespace(HOME), {"mode": "overwrite"}),
        "that replaces one",
    ),
    Row("GET /v1/namespace/{id}/list", (read(HOME),), home()),
    Row("POST /v1/namespace/{id}/describe", (read(HOME),), home({})),
    Row("POST /v1/namespace/{id}/drop", (manage(HOME),), lambda objects: on(objects.namespace(HOME), {})),
    Row("POST /v1/namespace/{id}/exists", (read(HOME),), home({})),
    # Without an id these are about the root, which is neither made nor dropped by anybody.
    Row("POST /v1/namespace/create", (manage(ROOT),), nothing({}), status=400),
    Row("GET /v1/namespace/list", (browse(ROOT),), nothing()),
    Row("POST /v1/namespace/describe", (browse(ROOT),), nothing({})),
    Row("POST /v1/namespace/drop", (manage(ROOT),), nothing({}), status=400),
    Row("POST /v1/namespace/exists", (browse(ROOT),), nothing({})),
)


def rename(objects: Objects) -> Request:
    body = {"new_table_name": new_name(), "new_namespace_id": [AWAY]}
    return on(objects.ident(HOME), body)


TABLE_ROWS: Final = (
    Row("GET /v1/namespace/{id}/table/list", (read(HOME),), home()),
    Row(
        "GET /v1/namespace/table/list",
        (browse(ROOT),),
        nothing(params={"delimiter": "."}),
        "with a dot as delimiter",
    ),
    Row("GET /v1/namespace/table/list", (read(TABLE),), nothing(), "of the namespace with that name"),
    Row("GET /v1/table", (browse(ROOT),), nothing()),
    Row("GET /v1/table", (browse(ROOT),), nothing(headers={"x-lancedb-database": "lake"}), "of lancedb"),
    Row("POST /v1/table/{id}/declare", (write(HOME),), new({})),
    Row("POST /v1/table/{id}/describe", (read(HOME),), still({})),
    Row("POST /v1/table/{id}/describe", (read(HOME),), still({"tag": "first"}), "at a tag"),
    Row("POST /v1/table/{id}/exists", (read(HOME),), still({})),
    Row("POST /v1/table/{id}/drop", (manage(HOME),), fresh({})),
    Row(
        "POST /v1/table/{id}/register",
        (write(HOME),),
        lambda objects: on(f"{HOME}${new_name()}", {"location": objects.left_lance_table()}),
    ),
    Row(
        "POST /v1/table/{id}/register",
        (manage(HOME),),
        lambda objects: on(
            objects.ident(HOME), {"location": objects.left_lance_table(), "mode": "overwrite"}
        ),
        "that replaces a table",
    ),
    Row("POST /v1/table/{id}/deregister", (manage(HOME),), fresh({})),
    Row("POST /v1/table/{id}/rename", (manage(HOME), write(AWAY)), rename),
)

DATA_ROWS: Final = (
    Row("POST /v1/table/{id}/create", (write(HOME),), new(content=ROWS)),
    Row(
        "POST /v1/table/{id}/create",
        (manage(HOME),),
        fresh(content=ROWS, params={"mode": "overwrite"}),
        "that replaces a table",
    ),
    Row("POST /v1/table/{id}/insert", (write(HOME),), fresh(content=ROWS)),
    Row(
        "POST /v1/table/{id}/merge_insert",
        (write(HOME),),
        fresh(content=ROWS, params={"on": "id", "when_not_matched_insert_all": "true"}),
    ),
    Row("POST /v1/table/{id}/update", (write(HOME),), fresh({"updates": [["id", "id + 1"]]})),
    Row("POST /v1/table/{id}/delete", (write(HOME),), fresh({"predicate": "id = 1"})),
    Row("POST /v1/table/{id}/query", (read(HOME),), still(QUERY)),
    Row(
        "POST /v1/table/{id}/query",
        (read(HOME), read(AWAY)),
        lambda objects: on(objects.still_query, QUERY),
        "of a view over another table",
    ),
    Row(
        "POST /v1/table/{id}/query",
        (read(HOME), read(AWAY)),
        lambda objects: on(objects.still_query, QUERY | {"filter": "text = 'row 1'"}),
        "of a view by a hidden column",
        status=400,
    ),
    Row(
        "POST /v1/table/{id}/query",
        (read(SYSTEM),),
        lambda objects: on(f"{SYSTEM}$geneva_jobs", QUERY | {"filter": "job_id = 'none'"}),
        "of the jobs of Geneva's client",
    ),
    Row(
        "POST /v1/table/{id}/query",
        (browse(ROOT),),
        lambda objects: on(f"{SYSTEM}$geneva_jobs", QUERY),
        "of all jobs of Geneva's client",
    ),
    Row("POST /v1/table/{id}/explain_plan", (read(HOME),), still({"query": QUERY})),
    Row("POST /v1/table/{id}/analyze_plan", (read(HOME),), still(QUERY)),
    Row("POST /v1/table/{id}/count_rows", (read(HOME),), still({})),
    Row(
        "POST /v1/table/{id}/count_rows",
        (read(HOME), read(AWAY)),
        lambda objects: on(objects.still_query, {}),
        "of a view over another table",
    ),
    Row(
        "POST /v1/table/{id}/count_rows",
        (read(HOME), read(AWAY)),
        lambda objects: on(objects.still_query, {"predicate": "text = 'row 1'"}),
        "of a view by a hidden column",
        status=400,
    ),
    Row("GET /v1/table/{id}/count_rows", (read(HOME),), still()),
    Row("POST /v1/table/{id}/restore", (write(HOME),), fresh({"version": 1})),
    Row("POST /v1/table/{id}/stats", (read(HOME),), still({})),
    Row("GET /v1/table/{id}/stats", (read(HOME),), still()),
    Row("POST /v1/table/{id}/schema_metadata/update", (write(HOME),), fresh({"a": "b"})),
)


def next_version(objects: Objects) -> Request:
    table = objects.table(HOME)
    return on(ident_of(table), commit_body(2, table.stage(2)))


def delete_versions(objects: Objects) -> Request:
    ranges = [{"start_version": 1, "end_version": 2}]
    return on(ident_of(objects.two_versions(HOME)), {"ranges": ranges})


def create_versions(objects: Objects) -> Request:
    tables = [objects.table(HOME), objects.table(AWAY)]
    return request({"entries": [commit_body(2, table.stage(2), id=table.levels) for table in tables]})


def declare_and_deregister(objects: Objects) -> Request:
    declared = {"declare_table": {"id": [HOME, new_name()]}}
    return request({"operations": [declared, {"deregister_table": {"id": objects.table(AWAY).levels}}]})


def create_and_delete_versions(objects: Objects) -> Request:
    made, old = objects.table(HOME), objects.two_versions(AWAY)
    created = commit_body(2, made.stage(2), id=made.levels)
    deleted = {"id": old.levels, "ranges": [{"start_version": 1, "end_version": 2}]}
    return request({"operations": [{"create_table_version": created}, {"delete_table_versions": deleted}]})


VERSION_ROWS: Final = (
    Row("POST /v1/table/{id}/version/create", (write(HOME),), next_version),
    Row("POST /v1/table/{id}/version/list", (read(HOME),), still({})),
    Row(
        "POST /v1/table/{id}/version/list",
        (read(HOME),),
        still({}, params={"descending": "true", "limit": "1"}),
        "of the latest",
    ),
    Row("POST /v1/table/{id}/version/describe", (read(HOME),), still({"version": 1})),
    Row("POST /v1/table/{id}/version/delete", (manage(HOME),), delete_versions),
    Row("POST /v1/table/version/batch-create", (write(HOME), write(AWAY)), create_versions),
    Row(
        "POST /v1/table/batch-commit",
        (write(HOME), manage(AWAY)),
        declare_and_deregister,
        "that declares and deregisters",
    ),
    Row(
        "POST /v1/table/batch-commit",
        (write(HOME), manage(AWAY)),
        create_and_delete_versions,
        "that creates and deletes versions",
    ),
)


def tagged(body: Any) -> Preparation:
    def prepare(objects: Objects) -> Request:
        table = objects.two_versions(HOME)
        table.asked("tags/create", {"tag": "t", "version": 1})
        return on(ident_of(table), body)

    return prepare


def delete_branch(objects: Objects) -> Request:
    table = objects.table(HOME)
    table.asked("branches/create", {"name": "b"})
    return on(ident_of(table), {"name": "b"})


REFERENCE_ROWS: Final = (
    Row("POST /v1/table/{id}/tags/list", (read(HOME),), still({})),
    Row("GET /v1/table/{id}/tags/list", (read(HOME),), still()),
    Row("POST /v1/table/{id}/tags/version", (read(HOME),), still({"tag": "first"})),
    Row("POST /v1/table/{id}/tags/create", (write(HOME),), fresh({"tag": "t", "version": 1})),
    Row("POST /v1/table/{id}/tags/update", (write(HOME),), tagged({"tag": "t", "version": 2})),
    Row("POST /v1/table/{id}/tags/delete", (write(HOME),), tagged({"tag": "t"})),
    Row("POST /v1/table/{id}/branches/list", (read(HOME),), still({})),
    Row("POST /v1/table/{id}/branches/create", (write(HOME),), fresh({"name": "b"})),
    Row("POST /v1/table/{id}/branches/delete", (write(HOME),), delete_branch),
)

LANCE_TABLE_ROWS: Final = (*NAMESPACE_ROWS, *TABLE_ROWS, *DATA_ROWS, *VERSION_ROWS, *REFERENCE_ROWS)
