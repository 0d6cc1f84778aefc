"""Functions in Iceberg's metadata."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
import pytest

from tests.protocol.iceberg.wire import check_form
from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    RegisteredFunction,
    geneva_function,
    source_function,
)
from tidemill.protocols.iceberg.routes.functions import function_metadata, type_json

START = datetime(2024, 1, 1, tzinfo=UTC)


def double(
    *parameters: str, source: str = "def double(x): return x * 2", gives: pa.DataType | None = None
) -> Function:
    return source_function("double", source, parameters, gives or pa.int64(), name="double", python="3.11")


def registered(*functions: Function) -> list[RegisteredFunction]:
    return [
        RegisteredFunction(function, number, "me", START + timedelta(seconds=number))
        for number, function in enumerate(functions, start=1)
    ]


def told(*functions: Function) -> dict[str, Any]:
    metadata = function_metadata(registered(*functions))
    check_form(httpx.Response(200, json={"metadata": metadata}), "LoadFunctionResult")
    return metadata


def test_versions_of_one_signature_are_versions_of_one_definition() -> None:
    metadata = told(double("x", source="one"), double("x", source="two"))
    [definition] = metadata["definitions"]
    assert definition["definition-id"] == "unknown"
    assert definition["parameters"] == [{"name": "x", "type": "unknown"}]
    assert (definition["return-type"], definition["function-type"]) == ("long", "udf")
    assert definition["current-version-id"] == 2
    assert definition["versions"][0] == {
        "version-id": 1,
        "representations": [{"type": "sql", "dialect": "python", "sql": "one"}],
        "timestamp-ms": 1704067201000,
    }


def test_other_numbers_of_parameters_are_definitions_of_their_own() -> None:
    metadata = told(double("x"), double("x", "y"), double())
    assert [item["definition-id"] for item in metadata["definitions"]] == ["unknown", "unknown,unknown", ""]


def test_the_log_tells_which_versions_were_the_newest_when() -> None:
    log = told(double("x"), double("x", "y"), double("x", source="two"))["definition-log"]
    assert [
        {entry["definition-id"]: entry["version-id"] for entry in step["definition-versions"]} for step in log
    ] == [{"unknown": 1}, {"unknown": 1, "unknown,unknown": 2}, {"unknown": 3, "unknown,unknown": 2}]


def test_versions_that_give_something_else_than_the_newest_are_left_out() -> None:
    metadata = told(double("x"), double("x", gives=pa.string()))
    [definition] = metadata["definitions"]
    assert (definition["return-type"], [item["version-id"] for item in definition["versions"]]) == (
        "string",
        [2],
    )
    assert [step["timestamp-ms"] for step in metadata["definition-log"]] == [1704067202000]


def test_functions_that_make_rows_tell_their_columns() -> None:
    output = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])
    [definition] = told(geneva_function("chunks", FunctionKind.CHUNKER, b"{}", output))["definitions"]
    assert definition["function-type"] == "udtf"
    assert definition["return-type"] == {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": {"type": "list", "element": "string"}},
        ],
    }


def test_code_without_a_source_is_told_by_its_digest() -> None:
    function = geneva_function("f", FunctionKind.CHUNKER, b"{}", pa.schema([pa.field("a", pa.int32())]))
    [version] = told(function)["definitions"][0]["versions"]
    assert version["representations"][0]["sql"] == f"-- python function {function.digest}"


def test_a_name_has_the_same_uuid_for_ever() -> None:
    assert told(double("x"))["function-uuid"] == told(double("x", "y"))["function-uuid"]
    assert UUID(told(double("x"))["function-uuid"]).version == 5


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.float64(), "double"),
        (pa.large_string(), "string"),
        (pa.binary(), "binary"),
        (pa.binary(4), "fixed[4]"),
        (pa.date32(), "date"),
        (pa.time64("us"), "time"),
        (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("ms", "UTC"), "timestamptz"),
        (pa.timestamp("ns", "UTC"), "timestamptz_ns"),
        (pa.decimal128(9, 2), "decimal(9,2)"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.list_(pa.float32(), 3), {"type": "list", "element": "float"}),
        (pa.map_(pa.string(), pa.int32()), {"type": "map", "key": "string", "value": "int"}),
        (pa.struct([("a", pa.int64())]), {"type": "struct", "fields": [{"name": "a", "type": "long"}]}),
        (pa.duration("s"), "unknown"),
        (pa.null(), "unknown"),
        (pa.json_(), "string"),
    ],
)
def test_types_of_arrow_have_a_type_of_iceberg(kind: pa.DataType, expected: Any) -> None:
    assert type_json(kind) == expected
