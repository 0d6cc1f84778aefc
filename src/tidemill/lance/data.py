"""Rows of Lance tables: written as versions of the catalog, read from storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import lance
import pyarrow as pa

from tidemill.catalog.errors import ConcurrentModification, InvalidTableSchema, TableColumnNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import InsertMode, Table, TableQuery, WriteResult
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import TransactionEffect
from tidemill.errors import InvalidInput
from tidemill.lance.filters import check_filter
from tidemill.lance.namespace import CommittingNamespace

COMMIT_ATTEMPTS: Final = 20
SYSTEM_COLUMNS: Final = frozenset(
    {"_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version", "_distance", "_score"}
)


class LanceTableData:
    def __init__(self, versions: VersionOperations) -> None:
        self._versions = versions
        self._session = lance.Session()  # type: ignore[attr-defined]  # missing in pylance's stubs

    def create(self, table: Table, rows: pa.RecordBatchReader, also: TransactionEffect) -> WriteResult:
        namespace = CommittingNamespace(self._versions, table, also)
        with translated(table.ident, namespace):
            dataset = lance.write_dataset(
                rows,
                namespace_client=namespace,
                table_id=namespace.table_id,
                mode="create",
                enable_stable_row_ids=True,
            )
        return WriteResult(dataset.version, dataset.count_rows())

    def insert(self, table: Table, rows: pa.RecordBatchReader, mode: InsertMode) -> WriteResult:
        counted = _CountedRows(rows)
        namespace = CommittingNamespace(self._versions, table)
        with translated(table.ident, namespace):
            dataset = lance.write_dataset(
                counted.reader(),
                namespace_client=namespace,
                table_id=namespace.table_id,
                mode=mode.value,
                enable_stable_row_ids=True,
            )
        return WriteResult(dataset.version, counted.rows)

    def query(self, table: Table, query: TableQuery) -> pa.Table:
        dataset = self.open(table, query.version)
        if query.filter is not None:
            check_filter(query.filter, "filter")
        columns = _projection(table.ident, dataset.schema, query)
        with translated(table.ident):
            return dataset.scanner(
                columns=columns,
                filter=query.filter,
                limit=query.limit,
                offset=query.offset,
                nearest=_nearest(table.ident, dataset.schema, query),
                full_text_query=_full_text(query),
                prefilter=query.prefilter,
                with_row_id=query.with_row_id,
            ).to_table()

    def count_rows(self, table: Table, predicate: str | None, version: int | None) -> int:
        if predicate is not None:
            check_filter(predicate, "predicate")
        with translated(table.ident):
            return int(self.open(table, version).count_rows(predicate))

    def schema(self, table: Table, version: int | None) -> pa.Schema:
        return self.open(table, version).schema

    def has_stable_row_ids(self, table: Table) -> bool:
        return bool(self.open(table, None).has_stable_row_ids)

    def add_empty_columns(self, table: Table, fields: Sequence[pa.Field], also: TransactionEffect) -> int:
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            namespace = CommittingNamespace(self._versions, table, also)
            with translated(table.ident, namespace):
                dataset = lance.dataset(namespace_client=namespace, table_id=namespace.table_id)
                for field in fields:
                    if field.name in dataset.schema.names:
                        raise InvalidInput("name", f"{table.ident} already has a column '{field.name}'")
                try:
                    dataset.add_columns(pa.schema(fields))
                except OSError as error:
                    if namespace.failure is None and is_retryable(error) and attempt < COMMIT_ATTEMPTS:
                        continue
                    raise
                return int(dataset.version)
        raise ConcurrentModification(f"{table.ident} changes too fast to add a column; try again")

    def open(self, table: Table, version: int | None) -> lance.LanceDataset:
        """The table at a version; the catalog, not storage, says which one is the latest."""
        number = self._versions.get_latest(table).version if version is None else version
        with translated(table.ident):
            return lance.dataset(table.location, version=number, session=self._session)


class _CountedRows:
    def __init__(self, source: pa.RecordBatchReader) -> None:
        self._source = source
        self.rows = 0

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._source.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            self.rows += batch.num_rows
            yield batch


def is_retryable(error: Exception) -> bool:
    """pylance says some conflicts by type and others only in words."""
    return getattr(error, "retryable", False) is True or "Retryable commit conflict" in str(error)


@contextmanager
def translated(
    ident: TableIdent, namespace: CommittingNamespace | None = None, field: str = "request"
) -> Iterator[None]:
    """Turns pylance's errors into ours; what the commit itself raised goes first."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, pa.ArrowException) as error:
        if namespace is not None and namespace.failure is not None:
            raise namespace.failure from error
        if is_retryable(error) or "Incompatible transaction" in str(error):
            raise ConcurrentModification(
                f"{ident} was changed by another writer: {_first_line(error)}"
            ) from error
        if "schema" in str(error).lower() and "No field named" not in str(error):
            raise InvalidTableSchema(ident, _first_line(error)) from error
        if isinstance(error, ValueError | pa.ArrowException) or "Invalid user input" in str(error):
            raise InvalidInput(field, _first_line(error)) from error
        raise


def _first_line(error: Exception) -> str:
    """pylance appends the source line of its own code; users cannot use that."""
    return str(error).splitlines()[0].split(", /")[0].split(", rust/")[0]


def _projection(ident: TableIdent, schema: pa.Schema, query: TableQuery) -> list[str] | dict[str, str] | None:
    match query.columns:
        case None:
            return None
        case Mapping() as aliases:
            for alias, expression in aliases.items():
                check_filter(expression, f"columns.{alias}")
            return dict(aliases)
        case names:
            known = {*schema.names, *SYSTEM_COLUMNS}
            for name in names:
                if name.split(".")[0].strip("`") not in known:
                    raise TableColumnNotFound(ident, name, tuple(schema.names))
            return list(names)


def _nearest(ident: TableIdent, schema: pa.Schema, query: TableQuery) -> dict[str, Any] | None:
    if query.vector is None:
        return None
    column = query.vector_column or _only_vector_column(schema)
    if column not in schema.names:
        raise TableColumnNotFound(ident, column, tuple(schema.names))
    width = getattr(schema.field(column).type, "list_size", None)
    if width is not None and width != len(query.vector):
        raise InvalidInput("vector", f"has {len(query.vector)} numbers, but '{column}' has {width}")
    options = {
        "metric": query.distance_type,
        "nprobes": query.nprobes,
        "refine_factor": query.refine_factor,
    }
    chosen = {key: value for key, value in options.items() if value is not None}
    return {"column": column, "q": list(query.vector), "k": query.limit or 10, **chosen}


def _only_vector_column(schema: pa.Schema) -> str:
    names = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if len(names) != 1:
        raise InvalidInput("vector_column", f"is needed: the table has {len(names)} vector columns {names}")
    return str(names[0])


def _full_text(query: TableQuery) -> dict[str, Any] | None:
    if query.full_text is None:
        return None
    columns = list(query.full_text_columns) or None
    return {"query": query.full_text, "columns": columns}
