"""Every field of the requests that create and refresh views and fill columns, for every kind of view.

The functions are those that Geneva's client sends. What each option does is shown in `tests/e2e`; here it is
shown that each is taken through the generated client, and that each is refused by name where it makes no
sense.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, MaterializedViewApi, TableApi
from lance_namespace_urllib3_client.models import (
    AlterTableBackfillColumnsRequest,
    CreateMaterializedViewRequest,
    Identity,
    MaterializedViewUdtfEntry,
    RefreshMaterializedViewRequest,
)

from tests.geneva import PICKLED_WITH
from tests.protocol.geneva_wire import (
    BACKFILL,
    REFRESH,
    SOURCE_ROW,
    function,
    new_column,
    opened,
    output,
    table_function,
    version_of,
    view_body,
)
from tests.protocol.test_generated_jobs import wait_for
from tests.protocol.wire import TableOnWire, check_refusal

ROWS: Final = pa.table({"x": [1, 2, 3], "text": ["a b", "c", "d e f"], "key": ["u", "v", "u"]})
COUNTS: Final = [pa.field("key", pa.string()), pa.field("rows", pa.int64())]
WORDS: Final = [
    SOURCE_ROW,
    pa.field("__child_index", pa.int32()),
    pa.field("x", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("word", pa.string()),
]
MANIFEST: Final = '{"name": "m", "env_vars": {"A": "1"}, "pip": []}'
# Fields of a function that change nothing: its envelope and Spark's settings say the same or more.
HINTS: Final = {
    "udtf_name": "hinted",
    "udtf_version": "7",
    "num_cpus": 0.5,
    "num_gpus": 0.0,
    "memory": 1 << 30,
    "batch": False,
    "manifest_checksum": "c",
}
KINDS: Final = ("query", "chunker", "udtf")

needs_functions = pytest.mark.skipif(
    sys.version_info[:2] != PICKLED_WITH, reason="the functions were pickled with another Python"
)


@pytest.fixture(scope="module")
def source(http: httpx.Client) -> TableOnWire:
    """A table with a column that has a function, and a view; refused requests leave both as they are."""
    table = TableOnWire(http, "fields", "t")
    assert http.post("/v1/namespace/fields/create", json={}).status_code == 200
    table.create(ROWS)
    table.asked("add_columns", new_column("y", function("plus", ["x"], output("y", "int64"))))
    made = http.post("/v1/materialized_view/fields$words/create", json=creation(table, "chunker"))
    assert made.status_code == 201, made.text
    return table


def creation(source: TableOnWire, kind: str, **spec: Any) -> dict[str, Any]:
    """The body that creates a view of this kind; `spec` changes its function."""
    match kind:
        case "query":
            fields = [SOURCE_ROW, pa.field("x", pa.int64())]
            return view_body(source, kind, fields, scan={"columns": ["x"]})
        case "chunker":
            words = table_function("words", kind, input_columns=["text"], **spec)
            return view_body(source, kind, WORDS, scan={"columns": ["x", "text"]}, udtf_spec=words)
        case _:
            counts = table_function("counts", kind, input_columns=["key"], **spec)
            return view_body(source, kind, COUNTS, udtf_spec=counts)


def shown(view: TableOnWire, kind: str) -> list[tuple[Any, ...]]:
    rows = opened(view).to_table()
    columns = {"query": ["x"], "chunker": ["x", "position", "word"], "udtf": ["key", "rows"]}[kind]
    return sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True))


EXPECTED: Final = {
    "query": [(1,), (2,), (3,)],
    "chunker": [(1, 0, "a"), (1, 1, "b"), (2, 0, "c"), (3, 0, "d"), (3, 1, "e"), (3, 2, "f")],
    "udtf": [("u", 2), ("v", 1)],
}


@pytest.fixture
def table(http: httpx.Client, namespace: str) -> TableOnWire:
    made = TableOnWire(http, namespace, "t")
    made.create(ROWS)
    return made


@needs_functions
@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="urllib3")
@pytest.mark.parametrize("kind", KINDS)
def test_the_generated_client_may_set_every_field_of_a_view(
    generated: ApiClient, table: TableOnWire, kind: str
) -> None:
    views, view = MaterializedViewApi(generated), TableOnWire(table.http, table.namespace, "v")
    body = creation(table, kind, **HINTS, manifest=MANIFEST)
    spec = body.pop("udtf_spec")
    created = views.create_materialized_view_with_http_info(
        "$".join(view.levels),
        CreateMaterializedViewRequest(
            **body,
            udtf_spec=None if spec is None else MaterializedViewUdtfEntry(**spec),
            id=view.levels,
            identity=Identity(api_key="nobody", auth_token="nothing"),
            context={"trace": "1"},
        ),
    )
    assert (created.status_code, created.data.version) == (201, version_of(view))
    assert (created.data.job_id, created.data.context) == (None, None)
    accepted = views.refresh_materialized_view_with_http_info(
        "$".join(view.levels),
        refresh_materialized_view_request=RefreshMaterializedViewRequest(
            id=view.levels,
            identity=Identity(api_key="nobody"),
            context={"trace": "1"},
            src_version=version_of(table),
            max_rows_per_fragment=2,
            concurrency=1,
            intra_applier_concurrency=2,
            source_task_size=1,
            cluster="default",
            output_limit=100 if kind == "chunker" else None,
            manifest=MANIFEST,
        ),
    )
    assert (accepted.status_code, accepted.data.context) == (202, None)
    wait_for(table.http, accepted.data.job_id)
    assert shown(view, kind) == EXPECTED[kind]
    assert max(fragment.count_rows() for fragment in opened(view).get_fragments()) <= 2


@needs_functions
@pytest.mark.operation("AlterTableBackfillColumns", client="urllib3")
def test_the_generated_client_may_set_every_field_of_a_backfill(
    generated: ApiClient, table: TableOnWire
) -> None:
    table.asked("add_columns", new_column("y", function("plus", ["x"], output("y", "int64"))))
    accepted = TableApi(generated).alter_table_backfill_columns_with_http_info(
        "$".join(table.levels),
        AlterTableBackfillColumnsRequest(
            id=table.levels,
            identity=Identity(api_key="nobody"),
            context={"trace": "1"},
            branch="main",
            column="y",
            where="x > 1",
            concurrency=1,
            intra_applier_concurrency=2,
            min_checkpoint_size=1,
            max_checkpoint_size=2,
            batch_checkpoint_flush_interval_seconds=0.5,
            read_version=version_of(table),
            task_size=2,
            num_frags=1,
            checkpoint_size=1,
            commit_granularity=1,
            cluster="default",
            manifest=MANIFEST,
        ),
    )
    assert (accepted.status_code, accepted.data.context) == (202, None)
    wait_for(table.http, accepted.data.job_id)
    assert opened(table).to_table().sort_by("x")["y"].to_pylist() == [None, 3, 4]


@pytest.mark.operation("CreateMaterializedView", client="http")
@pytest.mark.parametrize("kind", [*KINDS, "scalar_udtf", "CHUNKER"])
def test_a_view_is_created_for_every_name_of_a_kind(source: TableOnWire, kind: str) -> None:
    plain = {"scalar_udtf": "chunker", "CHUNKER": "chunker"}.get(kind, kind)
    body = creation(source, plain) | {"kind": kind, "with_no_data": None, "auto_refresh": None}
    answer = source.http.post(f"/v1/materialized_view/fields$v{uuid4().hex}/create", json=body)
    assert (answer.status_code, answer.json().keys()) == (201, {"version"})


NUMBERS: Final = (0, -1, 1.5, "many", True, 1 << 63)
WRONG: Final[dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "create": [
        ("identity", {"identity": "owner"}),
        ("context", {"context": ["a"]}),
        ("id", {"id": ["fields", "other"]}),
        ("id", {"id": "fields$new"}),
        ("kind", {"kind": 1}),
        ("kind", {"kind": "batch"}),
        ("source_query", {"source_query": {"base": {}}}),
        ("output_schema", {"output_schema": 1}),
        ("udtf_spec", {"udtf_spec": "words"}),
        ("with_no_data", {"with_no_data": "no"}),
        ("auto_refresh", {"auto_refresh": 1}),
        ("refresh_interval", {"refresh_interval": 60}),
    ],
    "spec": [
        ("kind", {"kind": "udtf"}),
        ("udtf", {"udtf": ""}),
        ("udtf", {"udtf": 1}),
        ("udtf_sha", {"udtf_sha": "0" * 64}),
        ("udtf_name", {"udtf_name": 1}),
        ("udtf_version", {"udtf_version": 1}),
        ("input_columns", {"input_columns": "text"}),
        ("partition_by", {"partition_by": "x"}),
        ("partition_by_indexed_column", {"partition_by_indexed_column": "x"}),
        ("num_cpus", {"num_cpus": -1}),
        ("num_cpus", {"num_cpus": "all"}),
        ("num_gpus", {"num_gpus": "one"}),
        ("memory", {"memory": 1.5}),
        ("error_handling", {"error_handling": "skip it"}),
        ("batch", {"batch": True}),
        ("batch", {"batch": "yes"}),
        ("manifest", {"manifest": "nowhere"}),
        ("manifest", {"manifest": 1}),
        ("manifest_checksum", {"manifest_checksum": 1}),
        ("num_replicas", {"num_replicas": 2}),
    ],
    "refresh": [
        ("identity", {"identity": 5}),
        ("context", {"context": "x"}),
        ("id", {"id": ["other"]}),
        *(
            (name, {name: value})
            for name in (
                "src_version",
                "max_rows_per_fragment",
                "concurrency",
                "intra_applier_concurrency",
                "source_task_size",
            )
            for value in NUMBERS
        ),
        ("src_version", {"src_version": 999}),
        *(("output_limit", {"output_limit": value}) for value in NUMBERS if value is not NUMBERS[0]),
        ("cluster", {"cluster": "tpu"}),
        ("cluster", {"cluster": 5}),
        ("manifest", {"manifest": "nowhere"}),
        ("manifest", {"manifest": {}}),
        ("where", {"where": "x > 1"}),
    ],
    "backfill": [
        ("identity", {"identity": []}),
        ("context", {"context": "x"}),
        ("id", {"id": ["fields", "other"]}),
        ("branch", {"branch": 1}),
        ("manifest", {"manifest": {}}),
        ("udf", {"udf": "x"}),
    ],
}
PATHS: Final = {
    "create": "/v1/materialized_view/fields$new/create",
    "spec": "/v1/materialized_view/fields$new/create",
    "refresh": "/v1/materialized_view/fields$words/refresh",
    "backfill": "/v1/table/fields$t/backfill_column",
}


@pytest.fixture(scope="module")
def unchanged(source: TableOnWire) -> Iterator[TableOnWire]:
    """The same for requests that are refused: none of them starts a job or makes a view."""
    yield source
    assert source.post("exists").status_code == 200
    new = TableOnWire(source.http, "fields", "new")
    check_refusal(new.post("describe"), 404, 4)
    for name in ("fields.t", "fields.words"):
        assert source.http.get("/api/v1/jobs", params={"table": name}).json()["jobs"] == []


@pytest.mark.parametrize(
    ("what", "field", "change"),
    [(what, field, change) for what, wrong in WRONG.items() for field, change in wrong],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_400_and_named(
    unchanged: TableOnWire, what: str, field: str, change: dict[str, Any]
) -> None:
    bodies: dict[str, dict[str, Any]] = {"refresh": REFRESH, "backfill": BACKFILL | {"column": "y"}}
    body = bodies.get(what) or creation(unchanged, "chunker")
    if what == "spec":
        field, change = f"udtf_spec.{field}", {"udtf_spec": body["udtf_spec"] | change}
    check_refusal(unchanged.http.post(PATHS[what], json=body | change), 400, 13, field)


@pytest.mark.parametrize("what", ["create", "refresh", "backfill"])
@pytest.mark.parametrize("delimiter", ["", "x" * 17])
def test_a_delimiter_that_is_none_is_400(unchanged: TableOnWire, what: str, delimiter: str) -> None:
    answer = unchanged.http.post(PATHS[what], json={}, params={"delimiter": delimiter})
    check_refusal(answer, 400, 13, "delimiter")


@pytest.mark.parametrize("what", ["create", "refresh", "backfill"])
def test_the_root_is_neither_a_view_nor_a_table(unchanged: TableOnWire, what: str) -> None:
    action = PATHS[what].rpartition("/")[2]
    group = "table" if what == "backfill" else "materialized_view"
    check_refusal(unchanged.http.post(f"/v1/{group}/$/{action}", json={}), 400, 13, "id")


def test_another_delimiter_parts_the_levels_of_a_name(table: TableOnWire) -> None:
    """Nulls are what a client sends for fields that it does not set."""
    dots, http = {"delimiter": "."}, table.http
    table.asked("add_columns", new_column("y", function("plus", ["x"], output("y", "int64"))))
    view = f"/v1/materialized_view/{table.namespace}.v"
    created = http.post(f"{view}/create", json=creation(table, "query"), params=dots)
    assert created.status_code == 201
    refreshing = http.post(f"{view}/refresh", json=dict.fromkeys(REFRESH), params=dots)
    path = f"/v1/table/{table.namespace}.t/backfill_column"
    filling = http.post(path, json=dict.fromkeys(BACKFILL) | {"column": "y"}, params=dots)
    for accepted, kind in ((refreshing, "refresh"), (filling, "backfill")):
        assert accepted.status_code == 202, accepted.text
        job = http.get(f"/api/v1/jobs/{accepted.json()['job_id']}").json()
        assert (job["kind"], job["table"]) == (kind, [table.namespace, "v" if kind == "refresh" else "t"])
        http.post("/v1/jobs/cancel", json={"job_id": job["job_id"]})
