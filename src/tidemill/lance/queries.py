"""Queries, counts and explains on Lance tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table, TableKind
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore
from tidemill.lance.datasets import translated
from tidemill.lance.evaluation.evaluator import Evaluator
from tidemill.lance.evaluation.tables import Tables
from tidemill.lance.field_paths import PLAIN, get_field, sql_path
from tidemill.lance.filters import check_filter
from tidemill.lance.full_text import full_text_query
from tidemill.lance.model.queries import QueryResult, TableQuery, VectorSearch

ROW_ID: Final = "_rowid"
SYSTEM_COLUMNS: Final = frozenset(
    {
        ROW_ID,
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_distance",
        "_score",
    }
)
LITERALS: Final = frozenset({"true", "false", "null", "current_date", "current_time", "current_timestamp"})
DEFAULT_NEIGHBOURS: Final = 10


MAX_VIEWS: Final = 10_000


class InternalColumns:
    """The internal columns of materialized views, which are hidden from those who do not ask for them."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        # A definition never changes, and another view has another id.
        self._known: dict[UUID, frozenset[str]] = {}

    def of(self, table: Table) -> frozenset[str]:
        if table.kind is not TableKind.VIEW:
            return frozenset()
        known = self._known.get(table.table_id)
        return self._read(table.table_id) if known is None else known

    def _read(self, view_id: UUID) -> frozenset[str]:
        with self._store.reading() as tx:
            view = tx.derived.find_view(view_id)
        if view is None:
            return frozenset()
        if len(self._known) >= MAX_VIEWS:
            self._known.clear()
        self._known[view_id] = view.internal_columns
        return view.internal_columns


def without_columns(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    if not names:
        return schema
    return pa.schema([field for field in schema if field.name not in names], schema.metadata)


class LanceTableQueries:
    """Reads rows of a version that is known to exist, for a principal."""

    def __init__(self, evaluator: Evaluator, internal: InternalColumns) -> None:
        self._evaluator = evaluator
        self._internal = internal

    def query(self, caller: str, table: Table, query: TableQuery, version: int) -> QueryResult:
        hidden = self._internal.of(table) if query.columns is None else frozenset()
        return self._evaluator.read(caller, _query, table, query, version, hidden)

    def query_in_memory(
        self, caller: str, ident: TableIdent, rows: pa.Table, query: TableQuery
    ) -> QueryResult:
        """Queries rows in memory as if they were those of the table."""
        return self._evaluator.read(caller, _query_in_memory, ident, rows, query)

    def count_rows(self, caller: str, table: Table, predicate: str | None, version: int) -> int:
        if predicate is not None:
            check_filter(predicate, "predicate")
        return self._evaluator.read(caller, _count_rows, table, predicate, version)

    def explain(self, caller: str, table: Table, query: TableQuery, version: int, *, is_verbose: bool) -> str:
        return self._evaluator.read(caller, _explain, table, query, version, is_verbose=is_verbose)

    def analyze(self, caller: str, table: Table, query: TableQuery, version: int) -> str:
        """Runs the query and reports the cost of each step."""
        return self._evaluator.read(caller, _analyze, table, query, version)


def _query(
    tables: Tables, table: Table, query: TableQuery, version: int, hidden: frozenset[str]
) -> QueryResult:
    scan = _Scan(table.ident, tables.open(table, version), query)
    scan.hidden |= hidden
    return _result(tables, scan, table.ident, version)


def _query_in_memory(tables: Tables, ident: TableIdent, rows: pa.Table, query: TableQuery) -> QueryResult:
    dataset = lance.write_dataset(rows, f"memory://{uuid4()}")
    return _result(tables, _Scan(ident, dataset, query), ident, dataset.version)


def _count_rows(tables: Tables, table: Table, predicate: str | None, version: int) -> int:
    with translated(table.ident, field="predicate"):
        return int(tables.open(table, version).count_rows(predicate))


def _explain(tables: Tables, table: Table, query: TableQuery, version: int, *, is_verbose: bool) -> str:
    scan = _Scan(table.ident, tables.open(table, version), query)
    with translated(table.ident):
        return str(scan.scanner().explain_plan(is_verbose))


def _analyze(tables: Tables, table: Table, query: TableQuery, version: int) -> str:
    scan = _Scan(table.ident, tables.open(table, version), query)
    with translated(table.ident):
        return str(scan.scanner().analyze_plan())


def _result(tables: Tables, scan: _Scan, ident: TableIdent, version: int) -> QueryResult:
    """Reads all rows, so that an error is not a response that breaks off."""
    with translated(ident):
        reader = scan.scanner().to_reader()
        names = [name for name in reader.schema.names if name not in scan.hidden]
        schema = pa.schema([reader.schema.field(name) for name in names], reader.schema.metadata)
        return QueryResult(version, tables.arrow_file(schema, _batches(reader, names)))


def _batches(reader: pa.RecordBatchReader, names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch if batch.schema.names == names else batch.select(names)


class _Scan:
    """A query as options of Lance's scanner; `hidden` are columns that are read but not returned."""

    def __init__(self, ident: TableIdent, dataset: lance.LanceDataset, query: TableQuery) -> None:
        self._ident = ident
        self._dataset = dataset
        self._query = query
        self._is_batch = False
        if query.filter is not None:
            check_filter(query.filter, "filter")
        if query.vector is not None and query.full_text is not None:
            raise InvalidInput(
                "full_text_query", "cannot be combined with a vector; send two queries and join them"
            )
        # To sort, Lance fetches the other columns later by row id, but does not request the id itself.
        self.hidden = frozenset({ROW_ID}) if query.order and not self._shows_row_id() else frozenset()

    def scanner(self) -> lance.LanceScanner:
        query = self._query
        full_text = query.full_text
        nearest = self._nearest()
        return self._dataset.scanner(
            columns=self._projection(),
            filter=query.filter,
            limit=None if self._is_batch else query.limit,
            offset=None if self._is_batch else query.offset,
            nearest=nearest,
            full_text_query=(
                None if full_text is None else full_text_query(self._ident, self._dataset, full_text)
            ),
            prefilter=query.prefilter,
            with_row_id=query.with_row_id or ROW_ID in self.hidden,
            fast_search=query.only_indexed or None,
            order_by=self._order(),
        )

    def _shows_row_id(self) -> bool:
        columns = self._query.columns
        return self._query.with_row_id or (columns is not None and ROW_ID in columns)

    def _projection(self) -> list[str] | dict[str, str] | None:
        match self._query.columns:
            case None:
                return None
            case Mapping() as aliases:
                for alias, expression in aliases.items():
                    check_filter(expression, f"columns.{alias}"[:200])
                    self._check_name(expression)
                return dict(aliases)
            case names:
                return [self._column(name) for name in names]

    def _column(self, name: str) -> str:
        """The column without quotes around a whole name, which would become part of the result's name."""
        if name in SYSTEM_COLUMNS:
            return name
        names, _ = get_field(self._ident, self._dataset.schema, name, "columns")
        return names[0] if len(names) == 1 else sql_path(names)

    def _check_name(self, expression: str) -> None:
        """Raises TableColumnNotFound; Lance, which ignores case here, would call the expression invalid."""
        names = self._dataset.schema.names
        known = {name.lower() for name in (*names, *SYSTEM_COLUMNS, *LITERALS)}
        if PLAIN.fullmatch(expression) and expression.lower() not in known:
            raise TableColumnNotFound(self._ident, expression, tuple(names))

    def _order(self) -> list[ColumnOrdering | str] | None:
        schema = self._dataset.schema
        orders: list[ColumnOrdering | str] = []
        for order in self._query.order:
            names, _ = get_field(self._ident, schema, order.column, "order_by")
            column = names[0] if len(names) == 1 else sql_path(names)
            orders.append(
                ColumnOrdering(column, ascending=order.is_ascending, nulls_first=order.has_nulls_first)
            )
        return orders or None

    def _nearest(self) -> dict[str, Any] | None:
        search = self._query.vector
        if search is None:
            return None
        column = search.column or _only_vector_column(self._dataset.schema)
        _, field = get_field(self._ident, self._dataset.schema, column, "vector_column")
        _check_width(column, field, search)
        vectors = [list(vector) for vector in search.vectors]
        # A multivector column takes several vectors as one query; otherwise each vector is its own search.
        self._is_batch = len(vectors) > 1 and pa.types.is_fixed_size_list(field.type)
        if self._is_batch:
            self._check_batch()
        rows = max(self._dataset.count_rows(), 1)
        limit = DEFAULT_NEIGHBOURS if self._query.limit is None else self._query.limit
        # Lance allocates memory for k, so do not request more rows than there are.
        neighbours = min(max(limit + (self._query.offset or 0), 1), rows)
        options = {
            "metric": search.distance_type,
            "minimum_nprobes": search.minimum_probes,
            "maximum_nprobes": search.maximum_probes,
            "refine_factor": _bounded(search.refine_factor, math.ceil(rows / neighbours)),
            "ef": _bounded(search.candidates, rows),
            "approx_mode": search.approximation,
            "distance_range": _range(search),
        }
        return {
            "column": column,
            "q": vectors if len(vectors) > 1 else vectors[0],
            "k": neighbours,
            "use_index": search.uses_index,
            **{key: value for key, value in options.items() if value is not None},
        }

    def _check_batch(self) -> None:
        if self._query.offset:
            raise InvalidInput("offset", "is for one query vector; leave it out or send one query each")
        if self._query.limit == 0:
            raise InvalidInput("k", "must be at least 1 with several query vectors")


def _bounded(value: int | None, maximum: int) -> int | None:
    return None if value is None else min(value, maximum)


def _range(search: VectorSearch) -> tuple[float | None, float | None] | None:
    if search.lower_bound is None and search.upper_bound is None:
        return None
    return search.lower_bound, search.upper_bound


def _check_width(column: str, field: pa.Field, search: VectorSearch) -> None:
    """Checks the dimension of the query vectors, for columns of vectors and of lists of vectors."""
    inner = field.type if pa.types.is_fixed_size_list(field.type) else getattr(field.type, "value_type", None)
    width = getattr(inner, "list_size", None)
    if width is None:
        raise InvalidInput("vector_column", f"'{column}' is {field.type}, which has no vectors to compare")
    for vector in search.vectors:
        if len(vector) != width:
            raise InvalidInput("vector", f"has {len(vector)} numbers, but '{column}' has {width}")


def _only_vector_column(schema: pa.Schema) -> str:
    names = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if len(names) != 1:
        raise InvalidInput("vector_column", f"is required: the table has {len(names)} vector columns {names}")
    return str(names[0])
