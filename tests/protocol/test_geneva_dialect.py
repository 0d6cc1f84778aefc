"""What Geneva's client sends, replayed without it: its functions, its views, its table of jobs."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest

from tests.geneva import ENVELOPES, PICKLED_WITH
from tests.protocol.geneva_wire import (
    HEADERS,
    JOB_COLUMNS,
    REFRESH,
    SOURCE_ROW,
    asked_for_view,
    backfill,
    create_view,
    ended,
    filled,
    function,
    jobs,
    new_column,
    opened,
    output,
    refreshed,
    table_function,
    version_of,
)
from tests.protocol.wire import TableOnWire, check_refusal

COUNTS = [pa.field("key", pa.string()), pa.field("rows", pa.int64())]
WORDS = [
    SOURCE_ROW,
    pa.field("__child_index", pa.int32()),
    pa.field("x", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("word", pa.string()),
]

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != PICKLED_WITH, reason="the functions were pickled with another Python"
)


@pytest.fixture(scope="module")
def geneva(http: httpx.Client) -> httpx.Client:
    client = httpx.Client(base_url=http.base_url, headers=HEADERS, params={"delimiter": "$"}, timeout=60)
    client.post("/v1/table/__system$geneva_jobs/declare", json={"id": ["__system", "geneva_jobs"]})
    return client


@pytest.fixture
def source(geneva: httpx.Client, namespace: str) -> TableOnWire:
    """A table as the client makes one: declared, then written into its place without stable row ids."""
    table = TableOnWire(geneva, namespace, f"t{uuid4().hex[:8]}")
    location = table.asked("declare", {"id": table.levels})["location"]
    rows = pa.table({"x": [1, 2, 3], "text": ["a b", "c", "d e f"], "key": ["u", "v", "u"]})
    assert not lance.write_dataset(rows, location).has_stable_row_ids
    return table


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="http")
@pytest.mark.parametrize(
    ("name", "inputs", "data_type", "values"),
    [
        ("plus", ["x"], "int64", [2, 3, 4]),
        ("doubled", ["x"], "int64", [2, 4, 6]),
        ("scaled", ["x"], "float", [0.5, 1.0, 1.5]),
        ("named", [], "string", [f"['x', 'text', 'key']:{x}" for x in (1, 2, 3)]),
    ],
)
def test_a_column_is_filled(
    source: TableOnWire, name: str, inputs: list[str], data_type: str, values: list[Any]
) -> None:
    column = function(name, inputs, output("y", data_type), field_metadata={"owner": "me"})
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    assert filled(source, "y") == values


@pytest.mark.operation("AlterTableAddColumns", client="http")
def test_the_client_finds_what_it_looks_for_before_a_backfill(source: TableOnWire) -> None:
    column = function("plus", ["x"], output("y", "int64"), field_metadata={"owner": "me"})
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    metadata = {k.decode(): v.decode() for k, v in opened(source).schema.field("y").metadata.items()}
    envelope = base64.b64decode(ENVELOPES["plus"])
    assert metadata["virtual_column"] == "true"
    assert metadata["virtual_column.udf"] == f"_udfs/{hashlib.sha256(envelope).hexdigest()}"
    assert json.loads(metadata["virtual_column.udf_inputs"]) == ["x"]
    assert metadata["virtual_column.udf_name"] == "plus"
    assert metadata["owner"] == "me"
    assert (source.directory / metadata["virtual_column.udf"]).read_bytes() == envelope


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="http")
def test_one_function_fills_several_columns(source: TableOnWire) -> None:
    outputs = [output("width", "int64", "width"), output("label", "string", "label")]
    column = function("size", ["x"], *outputs)
    source.asked("add_columns", {"id": source.levels, **new_column("width", column)})
    assert filled(source, "label") == ["n1", "n2", "n3"]
    assert opened(source).to_table()["width"].to_pylist() == [10, 20, 30]


@pytest.mark.operation("AlterTableBackfillColumns", client="http")
def test_no_value_is_stale_after_rows_were_moved_and_changed(source: TableOnWire) -> None:
    column = function("plus", ["x"], output("y", "int64"))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    assert filled(source, "y") == [2, 3, 4]
    source.asked("update", {"updates": [["x", "10"]], "predicate": "x = 1"})
    source.insert(opened(source).to_table(columns=["x", "text", "key"]).slice(0, 1))
    lance.dataset(str(source.directory)).optimize.compact_files()
    assert filled(source, "y") == [3, 3, 4, 11]


@pytest.mark.operation("AlterTableAlterColumns", client="http")
def test_a_column_gets_another_function(source: TableOnWire) -> None:
    column = function("plus", ["x"], output("y", "int64"))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    filled(source, "y")
    alteration = {"path": "y", "rename": None, "nullable": None, "virtual_column": function("doubled", ["x"])}
    answer = source.asked("alter_columns", {"id": source.levels, "alterations": [alteration]})
    assert answer["version"] == version_of(source)
    assert opened(source).schema.field("y").metadata[b"virtual_column.udf_name"] == b"doubled"
    assert filled(source, "y") == [2, 4, 6]


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="http")
def test_a_view_has_columns_of_functions(source: TableOnWire) -> None:
    envelope = base64.b64decode(ENVELOPES["plus"]).decode()
    udf = {
        "name": "plus",
        "backend": "DockerUDFSpecV1",
        "udf_payload": envelope,
        "runner_payload": '{"image":"test-image:latest"}',
    }
    made = [{"output_index": 1, "output_name": "y", "input_columns": ["x"], "udf": udf}]
    schema = [
        SOURCE_ROW,
        pa.field("__is_set", pa.bool_()),
        *(pa.field(name, pa.int64()) for name in ("x", "y", "twice")),
    ]
    scan = {"columns": {"x": "x", "twice": "x * 2"}, "filter": "x > 1"}
    view = create_view(source, "query", schema, scan=scan, column_udfs=made)
    metadata = opened(view).schema.metadata
    assert metadata[b"geneva::view::base_table"] == source.name.encode()
    assert metadata[b"geneva::view::version"] == b"2"
    columns = ("x", "y", "twice", "__is_set")
    assert refreshed(view, *columns) == [(2, 3, 4, True), (3, 4, 6, True)]
    source.asked("update", {"updates": [["x", "7"]], "predicate": "x = 2"})
    source.asked("delete", {"predicate": "x = 3"})
    assert refreshed(view, *columns) == [(7, 8, 14, True)]


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="http")
@pytest.mark.parametrize("columns", [["x", "text"], None])
def test_a_chunker_makes_rows(source: TableOnWire, columns: list[str] | None) -> None:
    inherited = [pa.field("x", pa.int64())] + ([pa.field("key", pa.string())] if columns is None else [])
    schema = [
        SOURCE_ROW,
        pa.field("__child_index", pa.int32()),
        *inherited,
        pa.field("position", pa.int64()),
        pa.field("word", pa.string()),
    ]
    spec = table_function("words", "chunker", input_columns=["text"], batch=False)
    view = create_view(source, "chunker", schema, scan={"columns": columns}, udtf_spec=spec)
    assert opened(view).schema.metadata[b"geneva::view::version"] == b"chunker"
    expected = [(1, 0, "a"), (1, 1, "b"), (2, 0, "c"), (3, 0, "d"), (3, 1, "e"), (3, 2, "f")]
    assert refreshed(view, "x", "position", "word") == expected
    source.asked("update", {"updates": [["text", "'new'"]], "predicate": "x = 3"})
    assert refreshed(view, "x", "position", "word") == [*expected[:3], (3, 0, "new")]


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="http")
@pytest.mark.parametrize(
    ("name", "partition_by", "rows"),
    [
        ("counts", None, [("u", 2), ("v", 1)]),
        ("one_row", None, [("u,v", 3)]),
        ("counts", "key", [("u", 2), ("v", 1)]),
    ],
)
def test_a_function_makes_a_table(
    source: TableOnWire, name: str, partition_by: str | None, rows: list[tuple[str, int]]
) -> None:
    spec = table_function(name, "udtf", partition_by=partition_by)
    view = create_view(source, "udtf", COUNTS, udtf_spec=spec)
    assert refreshed(view, "key", "rows") == rows


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="http")
def test_the_partitions_of_an_index_are_given_one_by_one(geneva: httpx.Client, namespace: str) -> None:
    source = TableOnWire(geneva, namespace, f"t{uuid4().hex[:8]}")
    location = source.asked("declare", {"id": source.levels})["location"]
    keys = ["u", "v"] * 150
    vectors = pa.array([[float(n), float(k == "u")] for n, k in enumerate(keys)], pa.list_(pa.float32(), 2))
    written = lance.write_dataset(pa.table({"key": keys, "vector": vectors}), location)
    written.create_index("vector", "IVF_FLAT", num_partitions=3)
    spec = table_function("counts", "udtf", partition_by_indexed_column="vector")
    view = create_view(source, "udtf", COUNTS, udtf_spec=spec)
    rows = refreshed(view, "key", "rows")
    assert len(rows) > 2
    totals = {key: sum(count for found, count in rows if found == key) for key in ("u", "v")}
    assert totals == {"u": 150, "v": 150}


@pytest.fixture
def chunked(source: TableOnWire) -> TableOnWire:
    """The view of the words of the source, with nothing in it yet."""
    spec = table_function("words", "chunker", input_columns=["text"], batch=False)
    return create_view(source, "chunker", WORDS, scan={"columns": ["x", "text"]}, udtf_spec=spec)


def refresh(view: TableOnWire, **options: Any) -> httpx.Response:
    path = f"/v1/materialized_view/{view.namespace}${view.name}/refresh"
    return view.http.post(path, json={"id": view.levels, **REFRESH, **options})


def words_after(view: TableOnWire, **options: Any) -> list[tuple[int, str]]:
    answer = refresh(view, **options)
    assert answer.status_code == 202, answer.text
    assert ended(view.http, answer.json()["job_id"])["status"] == "DONE"
    rows = opened(view).to_table()
    return sorted(zip(rows["x"].to_pylist(), rows["word"].to_pylist(), strict=True))


@pytest.mark.operation("RefreshMaterializedView", client="http")
def test_the_output_of_a_chunker_is_limited_and_comes_back(chunked: TableOnWire) -> None:
    expected = [(1, "a"), (1, "b"), (2, "c"), (3, "d"), (3, "e"), (3, "f")]
    assert words_after(chunked, output_limit=4) == expected[:4]
    assert words_after(chunked, output_limit=1) == expected[:1]
    assert words_after(chunked) == expected


@pytest.mark.operation("RefreshMaterializedView", client="http")
def test_a_limit_of_the_output_is_for_chunkers(source: TableOnWire) -> None:
    view = create_view(source, "udtf", COUNTS, udtf_spec=table_function("counts", "udtf"))
    check_refusal(refresh(view, output_limit=1), 400, 13, "output_limit")


@pytest.mark.operation("RefreshMaterializedView", client="http")
def test_a_view_goes_to_the_version_of_its_source_that_is_asked_for(
    source: TableOnWire, chunked: TableOnWire
) -> None:
    first = version_of(source)
    source.asked("update", {"updates": [["text", "'new'"]], "predicate": "x = 1"})
    source.asked("delete", {"predicate": "x = 3"})
    assert words_after(chunked) == [(1, "new"), (2, "c")]
    assert len(words_after(chunked, src_version=first)) == 6
    assert words_after(chunked) == [(1, "new"), (2, "c")]
    check_refusal(refresh(chunked, src_version=99), 400, 13, "src_version")


@pytest.mark.operation("RefreshMaterializedView", client="http")
def test_the_options_of_a_refresh_are_taken(chunked: TableOnWire) -> None:
    options = {"concurrency": 1, "intra_applier_concurrency": 2, "source_task_size": 1}
    assert len(words_after(chunked, max_rows_per_fragment=2, **options)) == 6
    assert max(fragment.count_rows() for fragment in opened(chunked).get_fragments()) <= 2


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_view_is_filled_when_it_is_created_if_asked_for(source: TableOnWire) -> None:
    spec = table_function("counts", "udtf", partition_by="key")
    view, answer = asked_for_view(source, "udtf", COUNTS, udtf_spec=spec, with_no_data=False)
    assert (answer.status_code, answer.json().keys()) == (201, {"version", "job_id"})
    assert ended(source.http, answer.json()["job_id"])["status"] == "DONE"
    assert opened(view).count_rows() == 2


@pytest.mark.operation("RefreshMaterializedView", client="http")
def test_a_column_that_a_user_adds_to_a_view_of_a_chunker_outlives_its_refreshes(
    source: TableOnWire, chunked: TableOnWire
) -> None:
    words_after(chunked)
    column = function("plus", ["x"], output("y", "int64"))
    chunked.asked("add_columns", {"id": chunked.levels, **new_column("y", column)})
    assert filled(chunked, "y") == [2, 2, 3, 4, 4, 4]
    source.asked("update", {"updates": [["text", "'new'"]], "predicate": "x = 3"})
    words_after(chunked)
    assert opened(chunked).to_table().sort_by("x")["y"].to_pylist() == [2, 2, 3, None]
    assert filled(chunked, "y") == [2, 2, 3, 4]


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_manifest_becomes_the_environment_of_a_view(source: TableOnWire) -> None:
    manifest = '{"name": "m", "env_vars": {"A": "1"}, "head_image": "i", "worker_image": "i", "pip": []}'
    spec = table_function("counts", "udtf", manifest=manifest, manifest_checksum="c")
    view = create_view(source, "udtf", COUNTS, udtf_spec=spec, auto_refresh=True)
    assert opened(view).schema.metadata[b"geneva::view::manifest"].decode() == manifest
    assert refreshed(view, "key", "rows") == [("u", 2), ("v", 1)]


@pytest.mark.operation("CreateMaterializedView", client="http")
@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"manifest": '{"name": "m", "conda": {"a": 1}}'}, 400, "manifest.conda"),
        ({"manifest": "nowhere"}, 400, "manifest"),
        ({"partition_by": "key", "partition_by_indexed_column": "key"}, 400, "partition_by_indexed_column"),
        ({"partition_by_indexed_column": "key"}, 400, "partition_by_indexed_column"),
        ({"udtf_sha": "0" * 64}, 400, "udtf_sha"),
        ({"num_gpus": 1.0}, 406, "num_gpus"),
        ({"num_cpus": "many"}, 400, "num_cpus"),
        ({"memory": -1}, 400, "memory"),
    ],
)
def test_a_view_that_cannot_be_served_is_refused(
    source: TableOnWire, change: dict[str, Any], status: int, field: str
) -> None:
    spec = table_function("counts", "udtf", **change)
    _, answer = asked_for_view(source, "udtf", COUNTS, udtf_spec=spec)
    check_refusal(answer, status, 13 if status == 400 else 0, f"udtf_spec.{field}")


@pytest.mark.operation("QueryTable", client="http")
def test_jobs_are_rows_of_a_table(source: TableOnWire) -> None:
    column = function("plus", ["x"], output("y", "int64"))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    job_id = backfill(source, "y")
    job = ended(source.http, job_id)
    assert list(job) == JOB_COLUMNS
    assert (job["table_name"], job["column_name"], job["job_type"]) == (source.name, "y", "BACKFILL")
    assert job["completed_at"] >= job["launched_at"]
    counted = {metric["name"]: metric["n"] for metric in map(json.loads, job["metrics"])}
    assert counted["rows_checkpointed"] == 3
    (listed,) = jobs(source.http, filter=f"table_name = '{source.name}' AND status = 'DONE'")
    assert listed["job_id"] == job_id
    assert jobs(source.http, filter="job_id = 'unknown'") == []


@pytest.mark.operation("QueryTable", client="http")
def test_the_last_event_of_a_failed_job_says_why(source: TableOnWire) -> None:
    column = function("plus", ["text"], output("y", "int64"))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    job = ended(source.http, backfill(source, "y"))
    assert job["status"] == "FAILED"
    assert "TypeError" in job["events"][-1]


@pytest.mark.operation("QueryTable", client="http")
def test_a_new_job_is_left_to_the_client_to_write_down(source: TableOnWire) -> None:
    """It adds its own row then; if it found one it would change that, which it cannot always do."""
    column = function("plus", ["x"], output("y", "int64"))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    job_id = backfill(source, "y")
    assert jobs(source.http, filter=f"job_id = '{job_id}'") == []
    assert ended(source.http, job_id)["job_id"] == job_id
    assert [job["status"] for job in jobs(source.http, filter=f"job_id = '{job_id}'")] == ["DONE"]


@pytest.mark.operation("AlterTableAddColumns", client="http")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"manifest": '{"name": "m", "pip": ["pandas"]}'}, "manifest.pip"),
        ({"manifest": "m"}, "manifest"),
        ({"auto_backfill": "yes"}, "auto_backfill"),
        ({"udf": base64.b64encode(b"{}").decode()}, "udf.udf_pickle"),
        ({"udf": "?"}, "udf"),
        ({"outputs": []}, "outputs"),
        ({"outputs": [output("other", "int64")]}, "outputs[0].column"),
        ({"outputs": [output("y", "int65")]}, "outputs[0].data_type"),
    ],
)
def test_what_cannot_be_served_is_refused(source: TableOnWire, change: dict[str, Any], field: str) -> None:
    column = function("plus", ["x"], output("y", "int64")) | change
    answer = source.post("add_columns", {"id": source.levels, **new_column("y", column)})
    check_refusal(answer, 400, 13, f"new_columns[0].virtual_column.{field}")


@pytest.mark.operation("AlterTableAddColumns", client="http")
def test_a_manifest_that_asks_for_nothing_is_met(source: TableOnWire) -> None:
    manifest = '{"name": "m", "pip": [], "conda": {}, "env_vars": {}, "zips": [], "skip_site_packages": true}'
    column = function("plus", ["x"], output("y", "int64"), manifest=manifest, manifest_checksum="c")
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    assert opened(source).schema.field("y").metadata[b"virtual_column.manifest"].decode() == manifest


@pytest.mark.operation("AlterTableAddColumns", client="http")
@pytest.mark.parametrize(
    "data_type",
    [
        pa.timestamp("us"),
        pa.timestamp("ms", "UTC"),
        pa.decimal128(10, 2),
        pa.time64("us"),
        pa.duration("ms"),
        pa.binary(4),
    ],
    ids=str,
)
def test_types_as_pyarrow_prints_them(source: TableOnWire, data_type: pa.DataType) -> None:
    column = function("plus", ["x"], output("y", str(data_type)))
    source.asked("add_columns", {"id": source.levels, **new_column("y", column)})
    assert opened(source).schema.field("y").type == data_type


@pytest.mark.operation("DeclareTable", client="http")
def test_the_system_namespace_comes_with_its_tables(geneva: httpx.Client) -> None:
    name = f"t{uuid4().hex[:8]}"
    assert geneva.post(f"/v1/table/__system${name}/declare", json={}).status_code == 200
    other = geneva.post(f"/v1/table/__other${name}/declare", json={})
    check_refusal(other, 404, 1)
