"""The tables of both specifications: what they say, and that they say what the documents say."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import pytest

from tests.operations import OPERATIONS
from tests.specification.answers import ICEBERG_PROTOCOL, LANCE_PROTOCOL, Protocol
from tests.specification.documents import (
    DOCUMENTS,
    FOLDER,
    TABLES,
    derived,
    document,
    missing_documents,
    schemas,
)
from tests.specification.notation import compacted, expanded
from tests.specification.tables import ICEBERG, LANCE, read_table

needs_documents: Final = pytest.mark.skipif(
    bool(missing_documents()), reason=f"{FOLDER} does not hold {' and '.join(missing_documents())}"
)
ERROR: Final = {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}}
TABLE: Final = "/v1/table/a$t"


@needs_documents
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_table_says_what_its_document_says(name: str) -> None:
    assert (TABLES / name).read_text() == derived(name), "run 'make tables' and commit the table"


@needs_documents
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_table_asserts_as_much_as_its_document(name: str) -> None:
    assert dict(read_table(name).schemas) == schemas(document(DOCUMENTS[name]))


def test_every_operation_is_in_a_table() -> None:
    assert sorted(LANCE.operations) == list(OPERATIONS)
    assert len(ICEBERG.operations) == 35


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_name_in_a_table_is_explained_there(name: str) -> None:
    table = read_table(name)
    answers = [one.answers for one in table.operations.values()]
    bodies = [one.body for one in table.operations.values()]
    written = [content for listed in answers for content in listed.values()] + bodies
    is_type = [expanded(one) for one in written if one is not None and "/" not in one]
    used = set(_references([is_type, dict(table.schemas)]))
    assert used <= table.schemas.keys()


def _references(value: Any) -> list[str]:
    match value:
        case {"$ref": target}:
            return [target.rpartition("/")[2]]
        case dict():
            return [name for one in value.values() for name in _references(one)]
        case list():
            return [name for one in value for name in _references(one)]
        case _:
            return []


@pytest.mark.parametrize(
    "written",
    [
        "any",
        "string(1..36)",
        "int64(0..)",
        "integer(..5)",
        "'asc'|'desc'",
        "TableMetadata|null",
        "/^[a-f]+$/",
        ["double", "2..2", "unique"],
        {"a": "string", "b?": ["int32"], "*": "none"},
        {"*": {"|": [["string"], "null"]}},
        {"a": "string", "&": ["Other"], "|": ["First", "object"]},
    ],
    ids=json.dumps,
)
def test_a_schema_is_written_and_read(written: Any) -> None:
    assert compacted(expanded(written)) == written


@pytest.mark.parametrize("schema", [{"type": "string", "not": {}}, {"type": "text"}, {"enum": [1]}], ids=str)
def test_a_schema_that_cannot_be_written_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|not a type"):
        compacted(schema)


def answer(method: str, path: str, status: int, body: Any = None) -> httpx.Response:
    request = httpx.Request(method, f"http://test{path}")
    return (
        httpx.Response(status, json=body, request=request)
        if body
        else httpx.Response(status, request=request)
    )


def label(value: object) -> str | None:
    match value:
        case Protocol():
            return value.table.document
        case httpx.Response():
            return f"{value.request.method} {value.request.url.path} {value.status_code}"
        case _:
            return None


@pytest.mark.parametrize(
    ("protocol", "given"),
    [
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/rename", 200, {"transaction_id": "x"})),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/exists", 200)),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/describe", 404, {"code": 4, "error": "no"})),
        (ICEBERG_PROTOCOL, answer("GET", "/iceberg/v1/namespaces/a/tables/t", 404, ERROR)),
        (ICEBERG_PROTOCOL, answer("GET", "/iceberg/v1/lake/namespaces/a/tables/t", 404, ERROR)),
        (ICEBERG_PROTOCOL, answer("HEAD", "/iceberg/v1/namespaces/a", 204)),
        (ICEBERG_PROTOCOL, answer("GET", "/v1/anything/else", 418)),
    ],
    ids=label,
)
def test_an_answer_as_specified_passes(protocol: Protocol, given: httpx.Response) -> None:
    protocol.check(given)


@pytest.mark.parametrize(
    ("protocol", "given", "problem"),
    [
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/describe", 418, {"code": 4}), "418 is not declared"),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/describe", 404, {"error": "no"}), "'code' is a required"),
        (
            LANCE_PROTOCOL,
            answer("POST", f"{TABLE}/rename", 200, {"transaction_id": 1}),
            "not of type 'string'",
        ),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/rename", 200, {"new": 1}), "'new' was unexpected"),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/exists", 200, {"a": 1}), "should be no content"),
        (LANCE_PROTOCOL, answer("POST", f"{TABLE}/query", 200, {"a": 1}), "arrow.file"),
        (ICEBERG_PROTOCOL, answer("GET", "/iceberg/v1/config", 200, {"defaults": {}}), "'overrides' is a"),
        (
            ICEBERG_PROTOCOL,
            answer("GET", "/iceberg/v1/namespaces/a", 404, ERROR["error"]),
            "'error' is a required",
        ),
        (ICEBERG_PROTOCOL, answer("GET", "/iceberg/v1/namespaces/a", 201), "201 is not declared"),
    ],
    ids=label,
)
def test_an_answer_that_departs_is_found(protocol: Protocol, given: httpx.Response, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        protocol.check(given)
