"""Columns over the wire: added by expressions, altered, dropped, described; each change one version."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AlterColumnsEntry,
    AlterTableAddColumnsRequest,
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    UpdateFieldMetadataEntry,
    UpdateFieldMetadataRequest,
)

import tidemill
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream
from tidemill.catalog.model.functions import encode_envelope
from tidemill.sdk.functions import function_of

BRANCH = "dev"


@tidemill.udf
def double(id: int) -> int:
    return id * 2


@tidemill.udf
def triple(id: int) -> int:
    return id * 3


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def path(table: TableOnWire) -> str:
    return f"{table.namespace}${table.name}"


@pytest.fixture
def nested(http: httpx.Client, namespace: str) -> TableOnWire:
    made = TableOnWire(http, namespace, "nested")
    struct = pa.struct([("a", pa.int64()), ("b.c", pa.string())])
    made.create(
        pa.table(
            {
                "id": pa.array([1, 2], pa.int64()),
                "s": pa.array([{"a": 1, "b.c": "x"}, {"a": 2, "b.c": "y"}], struct),
                "tags": pa.array([["x"], []], pa.list_(pa.string())),
            }
        )
    )
    return made


@pytest.fixture
def branched(table: TableOnWire) -> TableOnWire:
    table.asked("branches/create", {"name": BRANCH})
    return table


def opened(table: TableOnWire, branch: str | None = None) -> lance.LanceDataset:
    """The table as anybody sees it who reads storage."""
    place = str(table.directory) if branch is None else str(table.directory / "tree" / branch)
    return lance.dataset(place)


def names(table: TableOnWire, branch: str | None = None) -> list[str]:
    return list(opened(table, branch).schema.names)


@pytest.mark.operation("AlterTableAddColumns", client="urllib3")
def test_columns_are_added_by_expressions_in_one_version(
    tables: TableApi, table: TableOnWire, path: str
) -> None:
    entries = [
        AddColumnsEntry(name="twice", expression="id * 2"),
        AddColumnsEntry(name="loud", expression="upper(text)"),
    ]
    answer = tables.alter_table_add_columns(path, AlterTableAddColumnsRequest(new_columns=entries))
    assert (answer.version, table.numbers()) == (2, [1, 2])
    rows = opened(table).to_table(columns=["twice", "loud"]).to_pydict()
    assert rows == {"twice": [2, 4, 6], "loud": ["ROW 1", "ROW 2", "ROW 3"]}


def test_rows_that_come_later_have_no_value_in_an_added_column(table: TableOnWire) -> None:
    table.asked("add_columns", {"new_columns": [{"name": "twice", "expression": "id * 2"}]})
    table.insert(some_rows(4, 1))
    assert opened(table).to_table(columns=["twice"]).to_pydict() == {"twice": [2, 4, 6, None]}


@pytest.mark.operation("AlterTableAddColumns", client="http")
def test_columns_without_values_come_as_an_arrow_schema(table: TableOnWire) -> None:
    empty = pa.schema([pa.field("n", pa.int32()), pa.field("v", pa.list_(pa.float32(), 4))]).empty_table()
    assert table.asked("add_columns", content=stream(empty)) == {"version": 2}
    assert opened(table).to_table(columns=["n"]).to_pydict() == {"n": [None] * 3}


@pytest.mark.parametrize(
    ("entry", "status", "code", "field"),
    [
        ({"name": "id", "expression": "1"}, 400, 13, "name"),
        ({"name": "x", "expression": "nope + 1"}, 400, 13, "new_columns"),
        ({"name": "x", "expression": "id +"}, 400, 13, "new_columns"),
        ({"name": "x", "expression": "count(id)"}, 400, 13, "new_columns"),
        ({"name": "x", "expression": "cast(text as int)"}, 400, 13, "new_columns"),
        ({"name": "x", "expression": "id / 0"}, 400, 13, "new_columns"),
        ({"name": "x", "expression": "1; drop table t"}, 400, 13, "new_columns[0].expression"),
        ({"name": "a.b", "expression": "1"}, 400, 20, ""),
        ({"name": "", "expression": "1"}, 400, 13, "new_columns[0].name"),
        ({"name": "x", "expression": "1", "computed": "id"}, 400, 13, "new_columns[0].expression"),
        ({"name": "x", "expression": "1", "virtual_column": {}}, 400, 13, "new_columns[0].expression"),
    ],
)
def test_a_column_that_cannot_be_added_is_refused(
    unchanged: TableOnWire, entry: dict[str, Any], status: int, code: int, field: str
) -> None:
    check_refusal(unchanged.post("add_columns", {"new_columns": [entry]}), status, code, field)


def test_expressions_and_functions_do_not_mix(unchanged: TableOnWire) -> None:
    entries = [{"name": "a", "expression": "1"}, {"name": "b", "computed": "id"}]
    check_refusal(unchanged.post("add_columns", {"new_columns": entries}), 400, 13, "new_columns")


def test_the_same_new_name_twice_is_refused(unchanged: TableOnWire) -> None:
    entries = [{"name": "a", "expression": "1"}, {"name": "a", "expression": "2"}]
    check_refusal(unchanged.post("add_columns", {"new_columns": entries}), 400, 13, "new_columns")


@pytest.mark.operation("AlterTableAlterColumns", client="urllib3")
def test_columns_are_renamed_and_retyped_in_one_version(
    tables: TableApi, table: TableOnWire, path: str
) -> None:
    entries = [
        AlterColumnsEntry(path="id", rename="number", data_type={"type": "int32"}),
        AlterColumnsEntry(path="text", rename="words"),
    ]
    answer = tables.alter_table_alter_columns(path, AlterTableAlterColumnsRequest(alterations=entries))
    assert (answer.version, table.numbers()) == (2, [1, 2])
    schema = opened(table).schema
    assert schema.names == ["number", "words", "vector"]
    assert schema.field("number").type == pa.int32()
    assert opened(table).to_table(columns=["number"]).to_pydict() == {"number": [1, 2, 3]}


def test_a_column_without_nulls_is_made_not_nullable_and_nullable_again(table: TableOnWire) -> None:
    for nullable in (False, True):
        table.asked("alter_columns", {"alterations": [{"path": "text", "nullable": nullable}]})
        assert opened(table).schema.field("text").nullable is nullable


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "large_string"}, pa.large_string()),
        ({"type": "large_utf8"}, pa.large_string()),
        ("large_utf8", pa.large_string()),
    ],
)
def test_a_type_is_understood_in_both_vocabularies(
    table: TableOnWire, given: Any, wanted: pa.DataType
) -> None:
    table.asked("alter_columns", {"alterations": [{"path": "text", "data_type": given}]})
    assert opened(table).schema.field("text").type == wanted


def test_a_vector_is_given_another_precision(table: TableOnWire) -> None:
    item = {"name": "item", "type": {"type": "float16"}, "nullable": True}
    half = {"type": "fixed_size_list", "fields": [item], "length": 2}
    table.asked("alter_columns", {"alterations": [{"path": "vector", "data_type": half}]})
    assert opened(table).schema.field("vector").type == pa.list_(pa.float16(), 2)


def test_nested_fields_are_altered_by_their_paths(nested: TableOnWire) -> None:
    alterations = [{"path": "s.a", "rename": "first"}, {"path": "s.`b.c`", "rename": "second"}]
    nested.asked("alter_columns", {"alterations": alterations})
    assert opened(nested).to_table(columns=["s"]).to_pylist()[0] == {"s": {"first": 1, "second": "x"}}


@pytest.mark.parametrize(
    ("alteration", "status", "code", "field"),
    [
        ({"path": "nope", "rename": "x"}, 404, 12, ""),
        ({"path": "id.x", "rename": "x"}, 404, 12, ""),
        ({"path": "`id", "rename": "x"}, 400, 13, "alterations[0].path"),
        ({"path": "id..x", "rename": "x"}, 400, 13, "alterations[0].path"),
        ({"path": "id"}, 400, 13, "alterations[0]"),
        ({"path": "id", "rename": "text"}, 400, 20, ""),
        ({"path": "id", "rename": "a.b"}, 400, 20, ""),
        ({"path": "text", "data_type": {"type": "int32"}}, 400, 13, "alterations"),
        ({"path": "id", "data_type": {"type": "zork"}}, 400, 13, "alterations[0].data_type"),
        ({"path": "id", "data_type": {"type": "list"}}, 400, 13, "alterations[0].data_type"),
        ({"path": "id", "data_type": 7}, 400, 13, "alterations[0].data_type"),
        ({"path": "id", "nullable": "no"}, 400, 13, "alterations[0].nullable"),
        ({"path": "id", "rename": "x", "virtual_column": {}}, 400, 13, "alterations[0].virtual_column"),
        ({"path": "id", "rename": "x", "keep": "computed"}, 400, 13, "alterations[0].keep"),
        ({"path": "id", "virtual_column": {}, "keep": "everything"}, 400, 13, "alterations[0].keep"),
        ({"path": "id", "virtual_column": {}, "keep": True}, 400, 13, "alterations[0].keep"),
    ],
)
def test_an_alteration_that_cannot_be_is_refused(
    unchanged: TableOnWire, alteration: dict[str, Any], status: int, code: int, field: str
) -> None:
    check_refusal(unchanged.post("alter_columns", {"alterations": [alteration]}), status, code, field)


def test_a_value_too_large_for_its_new_type_is_refused(table: TableOnWire) -> None:
    table.asked("add_columns", {"new_columns": [{"name": "big", "expression": "id * 1000"}]})
    answer = table.post("alter_columns", {"alterations": [{"path": "big", "data_type": {"type": "int8"}}]})
    check_refusal(answer, 400, 13, "alterations")


@pytest.mark.operation("AlterTableDropColumns", client="urllib3")
def test_columns_are_dropped(tables: TableApi, table: TableOnWire, path: str) -> None:
    answer = tables.alter_table_drop_columns(path, AlterTableDropColumnsRequest(columns=["text", "vector"]))
    assert (answer.version, names(table)) == (2, ["id"])


def test_a_nested_field_is_dropped(nested: TableOnWire) -> None:
    nested.asked("drop_columns", {"columns": ["s.`b.c`"]})
    assert opened(nested).schema.field("s").type == pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "status", "code", "field"),
    [
        (["nope"], 404, 12, ""),
        (["id", "s.nope"], 404, 12, ""),
        ([], 400, 13, "columns"),
        ([""], 400, 13, "columns"),
        (["id", "text", "vector"], 400, 13, "columns"),
    ],
)
def test_a_column_that_cannot_be_dropped_is_refused(
    unchanged: TableOnWire, columns: list[str], status: int, code: int, field: str
) -> None:
    check_refusal(unchanged.post("drop_columns", {"columns": columns}), status, code, field)


def test_the_function_of_a_dropped_column_is_forgotten(table: TableOnWire) -> None:
    with tidemill.connect(str(table.http.base_url).rstrip("/")) as lake:
        lake.table(table.levels).add_column("double", double)
        table.asked("drop_columns", {"columns": ["double"]})
        table.asked("add_columns", {"new_columns": [{"name": "double", "expression": "0"}]})
        answer = table.post("backfill_column", {"column": "double"})
    check_refusal(answer, 400, 13, "column")


def test_a_function_follows_the_columns_that_are_renamed(table: TableOnWire) -> None:
    with tidemill.connect(str(table.http.base_url).rstrip("/")) as lake:
        lake.table(table.levels).add_column("double", double)
        alterations = [{"path": "id", "rename": "number"}, {"path": "double", "rename": "twofold"}]
        table.asked("alter_columns", {"alterations": alterations})
        lake.table(table.levels).backfill("twofold").wait()
    assert opened(table).to_table(columns=["twofold"]).to_pydict() == {"twofold": [2, 4, 6]}


@pytest.mark.operation("AlterTableAlterColumns", client="http")
def test_a_column_is_given_another_function(table: TableOnWire) -> None:
    with tidemill.connect(str(table.http.base_url).rstrip("/")) as lake:
        made = lake.table(table.levels)
        made.add_column("filled", double)
        made.backfill("filled").wait()
        envelope = encode_envelope(function_of(triple))
        function = {"udf": base64.b64encode(envelope).decode(), "input_columns": ["id"]}
        answer = table.asked(
            "alter_columns", {"alterations": [{"path": "filled", "virtual_column": function}]}
        )
        assert answer["version"] == table.numbers()[-1]
        made.backfill("filled").wait()
    assert opened(table).to_table(columns=["filled"]).to_pydict() == {"filled": [3, 6, 9]}


@pytest.mark.operation("UpdateFieldMetadata", client="urllib3")
def test_metadata_of_fields_is_merged_replaced_and_deleted_in_one_version(
    tables: TableApi, table: TableOnWire, path: str
) -> None:
    first = [
        UpdateFieldMetadataEntry(path="id", metadata={"a": "1", "b": "2"}),
        UpdateFieldMetadataEntry(path="text", metadata={"a": "1"}),
    ]
    tables.update_field_metadata(path, UpdateFieldMetadataRequest(updates=first))
    second = [
        UpdateFieldMetadataEntry(path="id", metadata={"a": None, "c": "3"}),
        UpdateFieldMetadataEntry(path="text", metadata={"z": "9", "a": None}, replace=True),
    ]
    answer = tables.update_field_metadata(path, UpdateFieldMetadataRequest(updates=second))
    assert (answer.version, table.numbers()) == (3, [1, 2, 3])
    assert answer.fields == {"id": {"b": "2", "c": "3"}, "text": {"z": "9"}}
    assert opened(table).schema.field("id").metadata == {b"b": b"2", b"c": b"3"}


def test_metadata_of_nested_fields_is_named_by_canonical_paths(nested: TableOnWire) -> None:
    updates = [
        {"path": "s.`b.c`", "metadata": {"k": "v"}},
        {"path": "`s`.a", "metadata": {"k": "w"}},
        {"path": "tags.item", "metadata": {"k": "x"}},
    ]
    answer = nested.asked("update_field_metadata", {"updates": updates})
    assert answer["fields"] == {"s.`b.c`": {"k": "v"}, "s.a": {"k": "w"}, "tags.item": {"k": "x"}}


@pytest.mark.parametrize(
    ("update", "status", "code", "field"),
    [
        ({"path": "nope", "metadata": {"a": "1"}}, 404, 12, ""),
        ({"path": "id"}, 400, 13, "updates[0].metadata"),
        ({"path": "id", "metadata": {"a": 1}}, 400, 13, "updates[0].metadata.a"),
        ({"metadata": {"a": "1"}}, 400, 13, "updates[0].path"),
    ],
)
def test_metadata_that_cannot_be_put_is_refused(
    unchanged: TableOnWire, update: dict[str, Any], status: int, code: int, field: str
) -> None:
    check_refusal(unchanged.post("update_field_metadata", {"updates": [update]}), status, code, field)


def test_a_field_updated_twice_is_refused(unchanged: TableOnWire) -> None:
    updates = [{"path": "id", "metadata": {"a": "1"}}, {"path": "`id`", "metadata": {"b": "1"}}]
    answer = unchanged.post("update_field_metadata", {"updates": updates})
    check_refusal(answer, 400, 13, "updates[1].path")


def test_every_change_of_columns_stays_on_its_branch(branched: TableOnWire) -> None:
    on = {"branch": BRANCH}
    branched.asked("add_columns", {**on, "new_columns": [{"name": "x", "expression": "id"}]})
    branched.asked("alter_columns", {**on, "alterations": [{"path": "text", "rename": "words"}]})
    branched.asked("drop_columns", {**on, "columns": ["vector"]})
    branched.asked("update_field_metadata", {**on, "updates": [{"path": "x", "metadata": {"a": "1"}}]})
    assert names(branched, BRANCH) == ["id", "words", "x"]
    assert opened(branched, BRANCH).schema.field("x").metadata == {b"a": b"1"}
    assert (names(branched), branched.numbers()) == (["id", "text", "vector"], [1])


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("add_columns", {"new_columns": [{"name": "x", "expression": "1"}]}),
        ("alter_columns", {"alterations": [{"path": "id", "rename": "x"}]}),
        ("drop_columns", {"columns": ["id"]}),
        ("update_field_metadata", {"updates": [{"path": "id", "metadata": {}}]}),
    ],
)
def test_an_unknown_branch_or_table_is_not_found(
    unchanged: TableOnWire, action: str, body: dict[str, Any]
) -> None:
    check_refusal(unchanged.post(action, {**body, "branch": "nope"}), 404, 22)
    missing = TableOnWire(unchanged.http, unchanged.namespace, "missing")
    check_refusal(missing.post(action, body), 404, 4)


def test_a_table_that_is_only_declared_has_no_columns(http: httpx.Client, namespace: str) -> None:
    declared = TableOnWire(http, namespace, "declared")
    declared.asked("declare", {})
    check_refusal(declared.post("drop_columns", {"columns": ["id"]}), 409, 19)


@pytest.mark.operation("AlterTableDropColumns", client="urllib3")
def test_the_generated_client_reads_the_refusal(tables: TableApi, path: str) -> None:
    with pytest.raises(ApiException) as raised:
        tables.alter_table_drop_columns(path, AlterTableDropColumnsRequest(columns=["nope"]))
    assert refusal(raised) == (404, 12)


def test_many_writers_at_once_each_get_their_column(table: TableOnWire) -> None:
    """Changes of a schema conflict with one another and with appends: each has to be built anew."""
    count = 6
    failed: list[httpx.Response] = []

    def add(number: int) -> None:
        body = {"new_columns": [{"name": f"c{number}", "expression": f"id + {number}"}]}
        answer = table.post("add_columns", body)
        if answer.status_code != 200:
            failed.append(answer)

    def append(number: int) -> None:
        answer = table.post("insert", content=stream(some_rows(10 + number, 1)))
        if answer.status_code != 200:
            failed.append(answer)

    workers = [threading.Thread(target=add, args=(number,)) for number in range(count)]
    threads = [*workers, *(threading.Thread(target=append, args=(number,)) for number in range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # An insert meets a schema that has grown since it began; that is the client's to send again.
    assert [answer.text for answer in failed if "insert" not in str(answer.request.url)] == []
    assert {f"c{number}" for number in range(count)} <= set(names(table))
