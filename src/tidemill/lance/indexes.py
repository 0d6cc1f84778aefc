"""Checks, builds, lists and drops indexes of Lance tables, and reads the partitions of an IVF index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
from lance.dataset import VectorIndexReader
from lance.progress import IndexProgress

from tidemill.catalog.errors import (
    ConcurrentModification,
    TableIndexAlreadyExists,
    TableIndexNotFound,
)
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.indexes import IndexDefinition, IndexStatistics, IndexType, TableIndex
from tidemill.jobs.model.views import Partition
from tidemill.jobs.ports import TransactionEffect
from tidemill.jobs.table_ports import BuildWatch
from tidemill.lance.datasets import CommittingNamespace, LanceTableData, backoff, is_conflict, translated
from tidemill.lance.field_paths import resolve_path
from tidemill.lance.versions.commit import VersionOperations

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


DISTANCE_TYPES: Final = ("l2", "cosine", "dot", "hamming")
QUANTIZER_BITS: Final = (4, 8)
TRIAL_ROWS: Final = 32
TRIAL_COLUMN: Final = "rehearsed"
# Training a product quantizer is slow and needs hundreds of rows, so the trial uses a flat index instead.
TRIAL_TYPES: Final[Mapping[IndexType, IndexType]] = {
    IndexType.IVF_PQ: IndexType.IVF_FLAT,
    IndexType.IVF_HNSW_PQ: IndexType.IVF_HNSW_FLAT,
}
PYLANCE_NAMES: Final[Mapping[str, str]] = {"max_iterations": "max_iters", "distance_type": "metric"}


def validate_definition(definition: IndexDefinition, field: pa.Field) -> None:
    """Builds the index in memory on rows of the column's type. Raises InvalidInput or Lance's own errors."""
    if definition.index_type.is_vector:
        _check_vector_parameters(definition, field)
    index_type = TRIAL_TYPES.get(definition.index_type, definition.index_type)
    parameters = {
        key: value
        for key, value in definition.parameters.items()
        if index_type is definition.index_type or key not in ("num_sub_vectors", "num_bits")
    }
    if "num_partitions" in parameters:
        parameters["num_partitions"] = 1
    trial = replace(definition, column=TRIAL_COLUMN, index_type=index_type, parameters=parameters)
    column = pa.field(TRIAL_COLUMN, field.type, metadata=field.metadata)
    rows = pa.table([_values(column.type)], schema=pa.schema([column]))
    create_index(lance.write_dataset(rows, f"memory://{uuid4()}"), trial, column, None)


def create_index(
    dataset: lance.LanceDataset,
    definition: IndexDefinition,
    field: pa.Field,
    on_progress: Callable[[IndexProgress], None] | None,
) -> None:
    """Builds and commits an index; the definition's column must be the canonical path of the field."""
    options: dict[str, Any] = {
        PYLANCE_NAMES.get(key, key): value for key, value in definition.parameters.items()
    }
    if on_progress is not None:
        options["progress_callback"] = on_progress
    if not definition.index_type.is_vector:
        dataset.create_scalar_index(
            definition.column,
            definition.index_type.value,  # type: ignore[arg-type]  # pylance wants literals
            definition.name,
            replace=definition.is_replacement,
            **options,
        )
        return
    if definition.index_type in TRIAL_TYPES:
        options.setdefault("num_sub_vectors", _default_sub_vectors(dimension_of(field)))
    dataset.create_index(
        definition.column,
        definition.index_type.value,
        definition.name,
        replace=definition.is_replacement,
        **options,
    )


def needed_rows(definition: IndexDefinition) -> int:
    """Number of rows with a value that are needed to train the index."""
    if not definition.index_type.is_vector:
        return 0
    if definition.index_type in TRIAL_TYPES:
        return 1 << int(definition.parameters.get("num_bits", 8))
    return 1


def dimension_of(field: pa.Field) -> int:
    """The dimension of a column of vectors, or of lists of vectors. Raises InvalidInput."""
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_list(data_type):
        data_type = data_type.value_type
    if not pa.types.is_fixed_size_list(data_type):
        raise InvalidInput(
            "column", f"'{field.name}' is {field.type}; a vector index needs a fixed-size list"
        )
    return int(data_type.list_size)


def _check_vector_parameters(definition: IndexDefinition, field: pa.Field) -> None:
    parameters = definition.parameters
    dimension, sub_vectors = dimension_of(field), parameters.get("num_sub_vectors")
    if sub_vectors is not None and dimension % sub_vectors:
        raise InvalidInput(
            "num_sub_vectors", f"{sub_vectors} does not divide {dimension}, the dimension of the vectors"
        )
    if parameters.get("distance_type", "l2") not in DISTANCE_TYPES:
        raise InvalidInput(
            "distance_type", f"{parameters['distance_type']!r:.60} is none of {', '.join(DISTANCE_TYPES)}"
        )
    if definition.index_type in TRIAL_TYPES and parameters.get("num_bits", 8) not in QUANTIZER_BITS:
        raise InvalidInput("num_bits", f"{parameters['num_bits']} is not 4 or 8, the supported sizes")


def _default_sub_vectors(dimension: int) -> int:
    """Chooses like lancedb: 16 values per sub-vector are fast, 8 are acceptable, one sub-vector is slow."""
    for width in (16, 8):
        if dimension % width == 0:
            return dimension // width
    return 1


def _values(data_type: pa.DataType) -> pa.Array:
    """Vectors to train with; for any other type one null is enough."""
    inner = data_type.value_type if pa.types.is_list(data_type) else data_type
    if not pa.types.is_fixed_size_list(inner):
        return pa.nulls(1, data_type)
    count = TRIAL_ROWS * inner.list_size
    numbers = pa.array(np.arange(count) * 7919 % 251, pa.int64()).cast(inner.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=inner)
    if inner is data_type:
        return vectors
    offsets = pa.array(range(TRIAL_ROWS + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, vectors, type=data_type)


FIELD: Final = "udtf_spec.partition_by_indexed_column"
# The partition key of rows that are not indexed yet.
UNINDEXED: Final = -1


def index_partitions(ident: TableIdent, dataset: lance.LanceDataset, column: str) -> Sequence[Partition]:
    """One partition per non-empty IVF partition, and one for the rows that are not indexed yet."""
    reader = VectorIndexReader(dataset, _index_of(ident, dataset, column))
    live = dataset.scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_numpy()
    unassigned = row_set(live)
    partitions: list[Partition] = []
    for number in range(reader.num_partitions()):
        ids = reader.read_partition(number)["_rowid"].to_numpy()
        rows = row_set(ids) & unassigned
        unassigned -= rows
        if rows:
            partitions.append(Partition(number, f"partition {number} of {column}", rows))
    if unassigned:
        partitions.append(Partition(UNINDEXED, f"rows not yet in the index of {column}", unassigned))
    return partitions


def _index_of(ident: TableIdent, dataset: lance.LanceDataset, column: str) -> str:
    if column not in dataset.schema.names:
        raise InvalidInput(FIELD, f"{ident} has no column {column!r:.60}; it has {dataset.schema.names}")
    indexes = [index for index in dataset.list_indices() if index["fields"] == [column]]
    for index in indexes:
        if str(index["type"]).startswith("IVF"):
            return str(index["name"])
    existing = ", ".join(sorted(str(index["type"]) for index in indexes)) or "no index"
    raise InvalidInput(FIELD, f"{column!r:.60} of {ident} has {existing}; an IVF index is needed")
