"""What is declared to be computed: columns and materialized views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid5

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.environments import OWN_ENVIRONMENT, Environment
from tidemill.catalog.model.functions import Function, FunctionEncoding
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy

SOURCE_ROW_ID: Final = "__source_row_id"
CHILD_INDEX: Final = "__child_index"
# Geneva's clients declare it in their query views; a row that is there has been set.
IS_SET: Final = "__is_set"
# Which rows are made, and replaced, together: those of one group, join key or partition have the same.
KEY: Final = "__key"


@dataclass(frozen=True, slots=True)
class ColumnOutput:
    """A column and the field of a function's struct result that fills it; no field means the whole result."""

    name: str
    struct_field: str | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column filled by a function; `inputs` are bound to its parameters in order.

    A function whose result is unpacked fills several columns, together and never one alone: `siblings` are
    all of them, and `name` is the first.
    """

    column_id: UUID
    table_id: UUID
    name: str
    function_digest: str
    inputs: tuple[str, ...]
    siblings: tuple[ColumnOutput, ...] = ()
    has_auto_backfill: bool = False

    @property
    def outputs(self) -> tuple[ColumnOutput, ...]:
        return self.siblings or (ColumnOutput(self.name),)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


def subject_of(column_id: UUID, branch: str) -> UUID:
    """What coverage, errors and jobs of a column are kept under: each branch has values of its own."""
    return column_id if branch == MAIN_BRANCH else uuid5(column_id, branch)


def bind_inputs(
    ident: TableIdent, schema: pa.Schema, function: Function, inputs: Sequence[str], field: str
) -> tuple[str, ...]:
    """The columns a function reads, checked to be there and to be as many as its parameters.

    One of Geneva's, whose parameters only its code tells, gets all columns unless it is bound to some.
    """
    is_open = function.encoding is FunctionEncoding.GENEVA
    bound = tuple(inputs) or (tuple(schema.names) if is_open else function.parameters)
    if not bound:
        raise InvalidInput(field, f"{function.name} needs at least one input column")
    if not is_open and len(bound) != len(function.parameters):
        parameters = ", ".join(function.parameters)
        raise InvalidInput(field, f"{function.name} takes ({parameters}), but got {len(bound)} columns")
    for name in bound:
        if name not in schema.names and name.split(".")[0] not in schema.names:
            raise TableColumnNotFound(ident, name, tuple(schema.names))
    return bound


class ViewKind(StrEnum):
    QUERY = "query"
    CHUNKER = "chunker"
    UDTF = "udtf"


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """The rows and columns of the source that a view is made from; no columns means all of them.

    `offset` and `limit` count the matching rows in the order the source stores them.
    """

    source: tuple[str, ...]
    columns: Mapping[str, str] | None = None
    filter: str | None = None
    limit: int | None = None
    offset: int | None = None

    @property
    def is_window(self) -> bool:
        return self.limit is not None or bool(self.offset)


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view that a function makes from columns of the source."""

    name: str
    function_digest: str
    inputs: tuple[str, ...]


class RefreshPolicy(StrEnum):
    """How a view is brought up to date."""

    # Incrementally where that is possible and cheaper.
    AUTO = "auto"
    # Or not at all: a refresh that would have to compute everything fails.
    INCREMENTAL = "incremental"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ViewSource:
    """A table or view that a view is made from, and what its definition calls it.

    `columns` are those that a statement has to do with, none meaning any: what is added later is no part of
    a `*` that was written before.
    """

    table_id: UUID
    levels: tuple[str, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A view's definition; its rows are in the table of the same id.

    `raw_query` is what the client sent, byte for byte. `digest` identifies the definition, code included.
    `output` are the columns as declared, in their order; a view defined before they were kept has None.
    `columns` are those that functions make in a query view; `function_digest` and `inputs` are a chunker's
    or a table function's. A view that Spark SQL evaluates has a `statement`, and may have several sources.
    One without sources was defined in a form that nobody here can read.
    """

    view_id: UUID
    sources: tuple[ViewSource, ...]
    kind: ViewKind
    query: SourceQuery
    raw_query: str
    digest: str
    function_digest: str | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False
    output: pa.Schema | None = None
    columns: tuple[ViewColumn, ...] = ()
    partition_by: str | None = None
    # The column whose IVF index parts the rows.
    partition_index: str | None = None
    statement: str | None = None
    policy: RefreshPolicy = RefreshPolicy.AUTO
    on_error: ErrorPolicy = FAIL_AT_ONCE
    environment: Environment = OWN_ENVIRONMENT

    @property
    def inputs_read(self) -> tuple[str, ...]:
        """Every source column that a function of the view reads."""
        others = [name for column in self.columns for name in column.inputs]
        keys = [] if self.partition_by is None else [self.partition_by]
        return tuple(dict.fromkeys([*self.inputs, *others, *keys]))

    @property
    def is_partitioned(self) -> bool:
        return self.partition_by is not None or self.partition_index is not None


def source_subject(view_id: UUID, source_id: UUID, place: int) -> UUID:
    """What the coverage of one of a view's sources is kept under; the first one's under the view itself."""
    return view_id if place == 0 else uuid5(view_id, str(source_id))


def frozen(query: SourceQuery, schema: pa.Schema) -> SourceQuery:
    """The query with its columns written out: columns added to the source later do not join the view."""
    if query.columns is not None:
        return query
    return replace(query, columns={name: quoted(name) for name in schema.names})


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def path_of(column: str) -> str:
    """The expression that reads a column, or a field inside one by its dotted path."""
    return ".".join(quoted(part.strip("`")) for part in column.split("."))
