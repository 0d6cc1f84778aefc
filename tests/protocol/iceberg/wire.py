"""Iceberg's protocol by hand: requests, keys, and answers held against the specification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import httpx
from openapi_schema_validator import OAS30Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.iceberg_requests import new_key
from tests.specification.answers import ICEBERG_PROTOCOL
from tests.specification.documents import document, missing_documents
from tests.specification.tables import ICEBERG

DOCUMENT: Final = "urn:iceberg"
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "text", "required": False, "type": "string"},
    ],
}


def check_form(answer: httpx.Response, schema: str, status: int = 200) -> Any:
    """The answer, if it has the specified form: by our table, and by the document if it is present."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    ICEBERG_PROTOCOL.check_schema(answer.json(), schema)
    if ICEBERG.document not in missing_documents():
        errors = _validator(schema).iter_errors(answer.json())
        assert [f"{'/'.join(map(str, one.absolute_path))}: {one.message:.300}" for one in errors] == []
    return answer.json()


@lru_cache
def _validator(schema: str) -> Any:
    resource = Resource.from_contents(_without_exclusion(document(ICEBERG.document)), DRAFT202012)
    registry = Registry().with_resource(DOCUMENT, resource)
    return OAS30Validator({"$ref": f"{DOCUMENT}#/components/schemas/{schema}"}, registry=registry)


def _without_exclusion(value: Any) -> Any:
    """Its alternatives are not exclusive: the name of a primitive type is two of the kinds of types."""
    match value:
        case dict():
            return {
                "anyOf" if key == "oneOf" else key: _without_exclusion(entry) for key, entry in value.items()
            }
        case list():
            return [_without_exclusion(entry) for entry in value]
        case _:
            return value


def check_error(answer: httpx.Response, status: int, kind: str, message: str = "") -> None:
    """The wrapped form, whatever the operation; `message` is how it begins."""
    error = check_form(answer, "IcebergErrorResponse", status)["error"]
    assert (error["type"], error["code"]) == (kind, status), error
    assert error["message"].startswith(message), error["message"]


def keyed(key: str | None = None) -> dict[str, str]:
    return {"Idempotency-Key": key or new_key()}


def view_version(sql: str = "SELECT 1 AS id", dialect: str = "spark", **fields: Any) -> dict[str, Any]:
    return {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1_700_000_000_000,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
        "default-namespace": [],
        **fields,
    }


def new_version(sql: str, **fields: Any) -> list[dict[str, Any]]:
    """The updates that make this the query of a view."""
    return [
        {"action": "add-view-version", "view-version": view_version(sql, **fields)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def set_properties(**updates: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": updates}


def properties_of(answer: httpx.Response) -> dict[str, str]:
    """Of a table, without the one that every new table has."""
    properties: dict[str, str] = answer.json()["metadata"]["properties"]
    return {key: value for key, value in properties.items() if key != "write.parquet.compression-codec"}


@dataclass(frozen=True)
class Space:
    """A namespace of one test, and what is asked of it."""

    http: httpx.Client
    name: str

    def at(self, *parts: str) -> str:
        return "/".join(["namespaces", quote(self.name, safe=""), *parts])

    def table(self, name: str = "t") -> str:
        return self.at("tables", quote(name, safe=""))

    def view(self, name: str = "v") -> str:
        return self.at("views", quote(name, safe=""))

    def ident(self, name: str) -> dict[str, Any]:
        return {"namespace": [self.name], "name": name}

    def create_table(self, name: str = "t", /, **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", None)
        return self.http.post(
            self.at("tables"), json={"name": name, "schema": SCHEMA, **fields}, headers=headers
        )

    def create_view(self, name: str = "v", /, **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", None)
        body = {"name": name, "schema": SCHEMA, "view-version": view_version(), "properties": {}, **fields}
        return self.http.post(self.at("views"), json=body, headers=headers)

    def made_table(self, name: str = "t", /, **fields: Any) -> dict[str, Any]:
        answer = self.create_table(name, **fields)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def made_view(self, name: str = "v", /, **fields: Any) -> dict[str, Any]:
        answer = self.create_view(name, **fields)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def commit(self, path: str, *updates: dict[str, Any], **fields: Any) -> httpx.Response:
        """To a table or view; `requirements` and `headers` may be given."""
        headers = fields.pop("headers", None)
        return self.http.post(path, json={"updates": list(updates), **fields}, headers=headers)

    def names(self, what: str) -> list[str]:
        answer = self.http.get(self.at(what))
        assert answer.status_code == 200, answer.text
        return [entry["name"] for entry in answer.json()["identifiers"]]
