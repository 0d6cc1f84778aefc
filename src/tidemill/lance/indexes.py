"""Checks, builds, lists and drops indexes of Lance tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
from lance.progress import IndexProgress

from tidemill.catalog.errors import (
    ConcurrentModification,
    TableIndexAlreadyExists,
    TableIndexNotFound,
)
from tidemill.catalog.field_paths import resolve_path
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.indexes import IndexDefinition, IndexStatistics, IndexType, TableIndex
from tidemill.catalog.model.tables import Table
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import TransactionEffect
from tidemill.catalog.schema_ports import BuildWatch
from tidemill.errors import InvalidInput
from tidemill.lance.committing_namespace import CommittingNamespace
from tidemill.lance.conflicts import backoff, is_conflict
from tidemill.lance.datasets import LanceTableData, translated
from tidemill.lance.index_validation import create_index, needed_rows, validate_definition

if TYPE_CHECKING:
    # The name is in pylance's stubs only.
    from lance.lance.indices import IndexDescription

ATTEMPTS: Final = 20
# Lance's names and those of the specification.
TYPE_NAMES: Final[Mapping[str, str]] = {
    "BTree": IndexType.BTREE,
    "Bitmap": IndexType.BITMAP,
    "LabelList": IndexType.LABEL_LIST,
    "Inverted": IndexType.FTS,
    "NGram": IndexType.NGRAM,
    "ZoneMap": IndexType.ZONEMAP,
    "BloomFilter": IndexType.BLOOMFILTER,
    "RTree": IndexType.RTREE,
}


class LanceTableIndexes:
    def __init__(self, versions: VersionOperations, data: LanceTableData) -> None:
        self._versions = versions
        self._data = data

    def check(self, table: Table, definition: IndexDefinition) -> IndexDefinition:
        dataset = self._data.open(table, None)
        path, field = _column(table.ident, dataset.schema, definition)
        with _as_invalid_input():
            validate_definition(definition, field)
        needed, rows = needed_rows(definition), dataset.count_rows()
        if rows < needed:
            raise _too_few_rows(definition, needed, rows)
        if not definition.is_replacement and _find(dataset, definition.name) is not None:
            raise TableIndexAlreadyExists(table.ident, definition.name)
        return replace(definition, column=path)

    def build(
        self, table: Table, definition: IndexDefinition, on_commit: TransactionEffect, watch: BuildWatch
    ) -> int:
        for attempt in range(ATTEMPTS):
            namespace = CommittingNamespace(self._versions, table, on_commit)
            with translated(table.ident, namespace, "index"), _as_invalid_input():
                dataset = namespace.open()
                self._check_buildable(table, dataset, definition)
                path, field = _column(table.ident, dataset.schema, definition)
                try:
                    create_index(dataset, replace(definition, column=path), field, _progress_callback(watch))
                except (OSError, RuntimeError) as error:
                    if namespace.failure is not None or not (namespace.lost_race or is_conflict(error)):
                        raise
                else:
                    return int(dataset.version)
            backoff(attempt)
        raise ConcurrentModification(f"{table.ident} changes too fast to build an index; try again")

    def count_rows(self, table: Table) -> int:
        return int(self._data.open(table, None).count_rows())

    def list_all(self, table: Table, version: int) -> Sequence[TableIndex]:
        dataset = self._data.open(table, version)
        with translated(table.ident):
            rows = dataset.count_rows()
            indexes = [_table_index(index, rows) for index in dataset.describe_indices()]
        return sorted(indexes, key=lambda index: index.name)

    def statistics(self, table: Table, version: int, name: str) -> IndexStatistics:
        dataset = self._data.open(table, version)
        index = _find(dataset, name)
        if index is None:
            raise TableIndexNotFound(table.ident, name)
        metric = index.details.get("metric_type")
        return IndexStatistics(
            index_type=TYPE_NAMES.get(index.index_type, index.index_type),
            indexed_rows=index.num_rows_indexed,
            unindexed_rows=max(0, dataset.count_rows() - index.num_rows_indexed),
            indices=len(index.segments),
            distance_type=None if metric is None else str(metric).lower(),
        )

    def drop(self, table: Table, name: str) -> int:
        for attempt in range(ATTEMPTS):
            namespace = CommittingNamespace(self._versions, table)
            with translated(table.ident, namespace):
                dataset = namespace.open()
                if _find(dataset, name) is None:
                    raise TableIndexNotFound(table.ident, name)
                try:
                    dataset.drop_index(name)
                except (OSError, RuntimeError) as error:
                    if namespace.failure is not None or not (namespace.lost_race or is_conflict(error)):
                        raise
                else:
                    return int(dataset.version)
            backoff(attempt)
        raise ConcurrentModification(f"{table.ident} changes too fast to drop an index; try again")

    def prewarm(self, table: Table, name: str) -> None:
        dataset = self._data.open(table, None)
        if _find(dataset, name) is None:
            raise TableIndexNotFound(table.ident, name)
        with translated(table.ident):
            dataset.prewarm_index(name)

    def _check_buildable(
        self, table: Table, dataset: lance.LanceDataset, definition: IndexDefinition
    ) -> None:
        """Checks again: the table may have changed since the request was accepted."""
        if not definition.is_replacement and _find(dataset, definition.name) is not None:
            raise TableIndexAlreadyExists(table.ident, definition.name)
        needed = needed_rows(definition)
        if needed:
            path, _ = _column(table.ident, dataset.schema, definition)
            rows = dataset.count_rows(f"{path} IS NOT NULL")
            if rows < needed:
                # Lance would silently build an index without rows.
                raise _too_few_rows(definition, needed, rows)


@contextmanager
def _as_invalid_input() -> Iterator[None]:
    """Raises InvalidInput for the various errors with which pylance rejects an index."""
    try:
        yield
    except (TypeError, KeyError) as error:
        raise InvalidInput("index_type", " ".join(str(part) for part in error.args)[:300]) from error
    except (ValueError, RuntimeError, pa.ArrowException) as error:
        message = str(error).splitlines()[0].split(", /")[0]
        if is_conflict(error):
            raise
        raise InvalidInput("index_type", message.removeprefix("Invalid user input: ")[:300]) from error


def _column(ident: TableIdent, schema: pa.Schema, definition: IndexDefinition) -> tuple[str, pa.Field]:
    return resolve_path(
        ident, schema, definition.column, "column", is_through_lists=definition.index_type is IndexType.FTS
    )


def _find(dataset: lance.LanceDataset, name: str) -> IndexDescription | None:
    return next((index for index in dataset.describe_indices() if index.name == name), None)


def _too_few_rows(definition: IndexDefinition, needed: int, rows: int) -> InvalidInput:
    return InvalidInput(
        "index_type",
        f"{definition.index_type} needs at least {needed} rows with a value in '{definition.column}' to be "
        f"trained, and the table has {rows}; insert more rows first",
    )


def _progress_callback(watch: BuildWatch) -> Callable[[IndexProgress], None]:
    def report(progress: IndexProgress) -> None:
        if progress.unit == "rows":
            watch.rows_done(progress.completed or 0)

    return report


def _table_index(index: IndexDescription, rows: int) -> TableIndex:
    newest = max(index.segments, key=lambda segment: segment.dataset_version_at_last_update)
    created_times = [segment.created_at for segment in index.segments if segment.created_at is not None]
    details: dict[str, Any] = dict(index.details)
    return TableIndex(
        name=index.name,
        uuid=str(newest.uuid),
        columns=tuple(index.field_names),
        index_type=TYPE_NAMES.get(index.index_type, index.index_type),
        type_url=index.type_url,
        indexed_rows=index.num_rows_indexed,
        unindexed_rows=max(0, rows - index.num_rows_indexed),
        size_bytes=index.total_size_bytes,
        segments=len(index.segments),
        created_at=min(created_times, default=None),
        index_version=newest.index_version,
        details=details,
    )
