"""What a materialized view is made from: rows and columns of a table, and a chunker if it has one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind, encode_envelope
from tidemill.jobs.model.derived import CHILD_INDEX, SOURCE_ROW_ID, ViewKind
from tidemill.sdk.functions import function_of, signature_of

QUERY_FORMAT: Final = "tidemill.query/1"
PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


class Source(Protocol):
    """A table that a view can be made from."""

    @property
    def levels(self) -> tuple[str, ...]: ...

    def projected_schema(self, columns: Mapping[str, str] | None) -> pa.Schema: ...


@dataclass(frozen=True)
class QueryDefinition:
    """Some rows and columns of a table, to define a view; made by `Table.select` and `Table.where`."""

    source: Source
    columns: Mapping[str, str] | None = None
    filter: str | None = None

    def select(self, *names: str, **expressions: str) -> QueryDefinition:
        """Keeps these columns, and adds those computed by SQL expressions."""
        chosen = {**(self.columns or {}), **{name: quoted(name) for name in names}, **expressions}
        if not chosen:
            raise ValueError("select needs at least one column")
        return replace(self, columns=chosen)

    def where(self, condition: str) -> QueryDefinition:
        """Keeps the rows for which the SQL condition holds, besides those given before."""
        return replace(self, filter=f"({self.filter}) AND ({condition})" if self.filter else condition)

    def chunk(self, function: Any, *, inputs: list[str] | None = None) -> ChunkerDefinition:
        """Makes rows from each of these rows with a function declared by `@tidemill.chunker`."""
        signature = signature_of(function)
        if signature.kind is not FunctionKind.CHUNKER:
            raise TypeError(
                f"{signature.name} makes one value per row; a view needs one with @tidemill.chunker"
            )
        return ChunkerDefinition(self, function_of(function), signature.bound_inputs(inputs))

    def output_schema(self) -> pa.Schema:
        """The columns of the view."""
        return pa.schema([pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False), *self.projected_fields()])

    def projected_fields(self) -> list[pa.Field]:
        return [
            pa.field(field.name, field.type, metadata=field.metadata)
            for field in self.source.projected_schema(self.columns)
        ]

    def request(self) -> dict[str, Any]:
        return _request(ViewKind.QUERY, self, self.output_schema(), None)


@dataclass(frozen=True)
class ChunkerDefinition:
    """Rows made by a chunker from the rows of a query, as the definition of a view; made by `Table.chunk`."""

    query: QueryDefinition
    function: Function
    inputs: tuple[str, ...]

    def output_schema(self) -> pa.Schema:
        """The columns of the view."""
        carried = self.query.projected_fields() if self.query.columns else []
        made = list(self.function.output)
        twice = {field.name for field in carried} & {field.name for field in made}
        if twice:
            raise ValueError(
                f"{self.function.name} yields {', '.join(sorted(twice))}, which select() keeps as well"
            )
        keys = [
            pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False),
            pa.field(CHILD_INDEX, pa.int32(), nullable=False),
        ]
        return pa.schema([*keys, *carried, *made])

    def request(self) -> dict[str, Any]:
        envelope = base64.b64encode(encode_envelope(self.function)).decode()
        spec = {
            "kind": ViewKind.CHUNKER.value,
            "udtf": envelope,
            "udtf_sha": hashlib.sha256(envelope.encode()).hexdigest(),
            "udtf_name": self.function.name,
            "udtf_version": self.function.digest,
            "input_columns": list(self.inputs),
        }
        return _request(ViewKind.CHUNKER, self.query, self.output_schema(), spec)


def quoted(name: str) -> str:
    """A column's name as an SQL expression."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _request(
    kind: ViewKind, query: QueryDefinition, output: pa.Schema, spec: Mapping[str, Any] | None
) -> dict[str, Any]:
    source_query = {
        "format": QUERY_FORMAT,
        "source": list(query.source.levels),
        "columns": dict(query.columns) if query.columns else None,
        "filter": query.filter,
    }
    return {
        "kind": kind.value,
        "source_query": json.dumps(source_query),
        "output_schema": base64.b64encode(output.serialize().to_pybytes()).decode(),
        "udtf_spec": spec,
    }
