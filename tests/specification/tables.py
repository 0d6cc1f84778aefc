"""The operations and schemas of both specifications, read from the tables in `tests/data`.

Every clone has the tables, so every clone validates answers.
`tests/architecture/test_specification_tables.py` compares them with the full documents where present.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from openapi_schema_validator import OAS31Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.specification.documents import TABLES
from tests.specification.notation import REFERENCE, Notation, Schema, expanded

CONTENT_OF_TABLE: Final = "urn:table"
JSON: Final = "application/json"


@dataclass(frozen=True)
class Operation:
    """One operation of a specification: how it is called and what it may answer."""

    name: str
    method: str
    path: str
    query: Mapping[str, Schema] = field(repr=False)
    body: Notation = field(repr=False)
    answers: Mapping[str, Notation] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def declares(self, status: int) -> bool:
        return self._key(status) in self.answers

    def answer(self, status: int) -> Notation:
        """The notation of a schema, or another media type than JSON, or None for no content."""
        return self.answers[self._key(status)]

    def _key(self, status: int) -> str:
        return str(status) if str(status) in self.answers else f"{status // 100}XX"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Servers may leave out Iceberg's prefix."""
        path = re.escape(self.path).replace(r"/\{prefix\}", "(?:/[^/]+)??")
        return re.compile(re.sub(r"\\{.+?\\}", "[^/]+", path))


@dataclass(frozen=True)
class SpecificationTable:
    """The content of one of the files in `tests/data`."""

    document: str
    operations: Mapping[str, Operation] = field(repr=False)
    schemas: Mapping[str, Schema] = field(repr=False)
    _validators: dict[str, OAS31Validator] = field(default_factory=dict, repr=False, compare=False)

    def operation(self, method: str, path: str) -> Operation | None:
        """The operation a request calls: of several that fit, the one with the fewest variables."""
        fitting = [
            one
            for one in self.operations.values()
            if one.method == method and one.pattern.fullmatch(path) is not None
        ]
        return min(fitting, key=lambda one: one.path.count("{"), default=None)

    def problems(self, value: Any, written: Notation) -> Iterator[str]:
        """Where a value departs from a schema, which is given in notation: often just its name."""
        for error in self._validator(written).iter_errors(value):
            yield f"{'/'.join(map(str, error.absolute_path))}: {error.message:.300}"

    def _validator(self, written: Notation) -> OAS31Validator:
        key = json.dumps(written)
        if key not in self._validators:
            self._validators[key] = OAS31Validator(self._absolute(expanded(written)), registry=self._registry)
        return self._validators[key]

    def _absolute(self, schema: Schema) -> Schema:
        text = json.dumps(schema).replace(f'"{REFERENCE}', f'"{CONTENT_OF_TABLE}{REFERENCE}')
        absolute: Schema = json.loads(text)
        return absolute

    @cached_property
    def _registry(self) -> Registry[Any]:
        resource = Resource.from_contents({"$defs": dict(self.schemas)}, DRAFT202012)
        registry: Registry[Any] = Registry().with_resource(CONTENT_OF_TABLE, resource)
        return registry


def read_table(name: str) -> SpecificationTable:
    content = json.loads((TABLES / name).read_text())
    return SpecificationTable(
        content["document"],
        {operation: _operation(operation, row) for operation, row in content["operations"].items()},
        {schema: expanded(written) for schema, written in content["schemas"].items()},
    )


def _operation(name: str, row: Mapping[str, Any]) -> Operation:
    method, path = row["call"].split(" ")
    query = {one.removesuffix("?"): expanded(written) for one, written in row.get("query", {}).items()}
    body = row.get("body", row.get("body?"))
    answers = {status: content for listed, content in row["answers"].items() for status in listed.split(" ")}
    return Operation(name, method, path, query, body, answers)


def _closed(schema: Any) -> Any:
    """The same schema without room for fields that it does not name, at any depth."""
    match schema:
        case dict():
            inner = {key: _closed(value) for key, value in schema.items()}
            is_open = "properties" in schema and "type" in schema and "additionalProperties" not in schema
            return inner | ({"additionalProperties": False} if is_open else {})
        case list():
            return [_closed(one) for one in schema]
        case _:
            return schema


def without_extensions(table: SpecificationTable) -> SpecificationTable:
    return replace(table, schemas={name: _closed(one) for name, one in table.schemas.items()}, _validators={})


ICEBERG: Final = read_table("iceberg_operations.json")
# Strict clients of Lance refuse unknown fields. Iceberg's schemas extend each other, so they stay open.
LANCE: Final = without_extensions(read_table("lance_operations.json"))
