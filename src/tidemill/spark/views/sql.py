"""Runs SQL views on Spark: sources become temporary views, and tasks write the result to the view."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.views import KEY, RunSql, SqlInput, ViewTarget, WrittenRows
from tidemill.jobs.views.sql.spark_text import check_spark_text
from tidemill.jobs.views.sql.types import is_list, read_type, spark_type
from tidemill.lance.fragments import get_fragment
from tidemill.lance.key_hashes import key_array
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.cluster import PINNED
from tidemill.spark.failures import SPARK_ERRORS, StatementFailed, statement_failure
from tidemill.spark.reading import BLOB_METADATA_KEY, BLOB_SCAN_ROWS, DENSE, SCAN_ROWS, WHOLE_BLOBS
from tidemill.spark.task_reports import TaskReport

TASKS_PER_SLOT: Final = 2
SMALL_KEY_COUNT: Final = 1000
ANSWER: Final = "answer binary"


def run_sql(session: SparkSession, stage: RunSql, slots: int, report_location: str) -> list[WrittenRows]:
    """Evaluates the statement and writes the rows that differ, with one task per slot."""
    check_spark_text(stage.statement, "source_query")
    tasks = 1 if _is_small(stage) else stage.parallelism or slots
    settings = {
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        **PINNED,
    }
    with _settings(session, settings):
        try:
            for source in stage.inputs:
                _table(session, source, slots, report_location).createOrReplaceTempView(source.name)
            result = session.sql(stage.statement)
            rows = _with_plain_names(result).repartition(tasks, KEY).sortWithinPartitions(KEY)
            write = write_function(
                stage.target, result.columns, stage.inputs[0].keys if stage.inputs else None
            )
            answers = rows.mapInArrow(write, ANSWER).collect()
        except SPARK_ERRORS as error:
            raise statement_failure(error) from error
        finally:
            with suppress(PySparkException):
                for source in stage.inputs:
                    session.catalog.dropTempView(source.name)
    return [pickle.loads(bytes(row.answer)) for row in answers]


def _is_small(stage: RunSql) -> bool:
    """Whether there are few keys; then one task is faster than several."""
    return all(source.keys is not None and len(source.keys) <= SMALL_KEY_COUNT for source in stage.inputs)


def _table(session: SparkSession, source: SqlInput, slots: int, report_location: str) -> DataFrame:
    dataset = lance.dataset(source.location, version=source.version)
    pieces = [] if source.keys is not None and not source.keys else split_into_pieces(dataset)
    shares = _shares(pieces, slots * TASKS_PER_SLOT)
    schema = input_schema(source, dataset.schema)
    numbers = session.range(0, len(shares), 1, max(len(shares), 1))
    read = read_function(source, schema, shares, report_location)
    return numbers.mapInArrow(read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _with_plain_names(result: DataFrame) -> DataFrame:
    """Renames columns: PySpark interprets backticks and dots in the input names of mapInArrow."""
    return result.toDF(
        *(KEY if name == KEY else f"c{position}" for position, name in enumerate(result.columns))
    )


def _shares(pieces: list[Piece], tasks: int) -> list[list[Piece]]:
    return [pieces[first::tasks] for first in range(min(tasks, len(pieces)))]


@contextmanager
def _settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session temporarily, since other work shares it."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
        if session.conf.get(name) != value:
            raise StatementFailed(f"Spark does not accept {name}={value}, which views need")
    try:
        yield
    finally:
        # If the session is gone, the original error is the better message.
        with suppress(PySparkException):
            for name, old in before.items():
                if old is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, old)


Batches: TypeAlias = Iterable[pa.RecordBatch]
BatchFunction: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]

# Number of rows that are searched for wanted keys at a time.
PIECE_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class Piece:
    """A range of live rows of a fragment, in storage order."""

    fragment_id: int
    offset: int
    rows: int


def split_into_pieces(dataset: lance.LanceDataset) -> list[Piece]:
    """Divides all live rows into pieces of about the same size."""
    counts = [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
    return [
        Piece(fragment_id, offset, min(PIECE_ROWS, rows - offset))
        for fragment_id, rows in counts
        for offset in range(0, rows, PIECE_ROWS)
    ]


def input_schema(source: SqlInput, schema: pa.Schema) -> pa.Schema:
    """The columns that the statement sees, in types that Spark supports. Raises TypeError."""
    types = [(name, spark_type(read_type(schema.field(name)))) for name in source.columns]
    unknown = [name for name, kind in types if kind is None]
    if unknown:
        kind = schema.field(unknown[0]).type
        raise TypeError(f"{unknown[0]} is of type {kind}, which Spark does not support")
    keys = [(KEY, pa.int64())] if source.key_columns else []
    return pa.schema([*types, *keys])


def read_function(
    source: SqlInput, schema: pa.Schema, shares: Sequence[Sequence[Piece]], scratch: str
) -> BatchFunction:
    """The function that Spark ships to read a table; its input rows are the numbers of shares to read."""

    def read(numbers: Batches) -> Iterator[pa.RecordBatch]:
        report = TaskReport(scratch)
        dataset = lance.dataset(source.location, version=source.version)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for piece in shares[number]:
                    yield from _read_piece(dataset, source, schema, piece)
                    report.rows_done(piece.rows)
        report.flush()

    return read


def _read_piece(
    dataset: lance.LanceDataset, source: SqlInput, schema: pa.Schema, piece: Piece
) -> Iterator[pa.RecordBatch]:
    if source.keys is None:
        yield from (_for_spark(batch, source, schema) for batch in _scan(dataset, source, piece))
        return
    members = np.array(source.keys.to_array(), dtype=np.uint64)
    row_ids, is_wanted = _find_wanted(dataset, source, piece, members)
    if is_wanted.sum() >= DENSE * len(is_wanted):
        start = 0
        for batch in _scan(dataset, source, piece) if is_wanted.any() else ():
            mask = is_wanted[start : start + len(batch)]
            start += len(batch)
            yield _for_spark(batch.filter(pa.array(mask)), source, schema)
    elif is_wanted.any():
        yield from _take(dataset, source, schema, row_ids[is_wanted])


def _scan(dataset: lance.LanceDataset, source: SqlInput, piece: Piece) -> Iterator[pa.RecordBatch]:
    scanner = get_fragment(dataset, piece.fragment_id).scanner(
        columns=_expressions(source),
        batch_size=_batch_rows(dataset, source),
        blob_handling=WHOLE_BLOBS,
        offset=piece.offset,
        limit=piece.rows,
    )
    yield from scanner.to_batches()


def _expressions(source: SqlInput) -> dict[str, str]:
    return {name: quoted(name) for name in dict.fromkeys((*source.columns, *source.key_columns))}


def _batch_rows(dataset: lance.LanceDataset, source: SqlInput) -> int:
    schema = dataset.schema
    has_blobs = any(BLOB_METADATA_KEY in (schema.field(name).metadata or {}) for name in source.columns)
    return BLOB_SCAN_ROWS if has_blobs else SCAN_ROWS


def _find_wanted(
    dataset: lance.LanceDataset, source: SqlInput, piece: Piece, members: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The ids of the rows in a piece, and a mask of those with a wanted key."""
    scanner = get_fragment(dataset, piece.fragment_id).scanner(
        columns={name: quoted(name) for name in source.key_columns},
        with_row_id=True,
        offset=piece.offset,
        limit=piece.rows,
    )
    rows = scanner.to_table()
    keys = key_array([rows[name] for name in source.key_columns])
    return rows["_rowid"].to_numpy(), np.isin(keys, members)


def _take(
    dataset: lance.LanceDataset, source: SqlInput, schema: pa.Schema, row_ids: npt.NDArray[np.uint64]
) -> Iterator[pa.RecordBatch]:
    step = _batch_rows(dataset, source)
    for start in range(0, len(row_ids), step):
        table = dataset._take_rows(
            row_ids[start : start + step], columns=_expressions(source), blob_handling=WHOLE_BLOBS
        )
        yield from (_for_spark(batch, source, schema) for batch in table.to_batches())


def _for_spark(batch: pa.RecordBatch, source: SqlInput, schema: pa.Schema) -> pa.RecordBatch:
    columns = [batch.column(name).cast(schema.field(name).type) for name in source.columns]
    if source.key_columns:
        keys = key_array([batch.column(name) for name in source.key_columns])
        columns.append(pa.array(keys.view(np.int64)))
    return pa.record_batch(columns, schema=schema)


def write_function(target: ViewTarget, names: Sequence[str], keys: BitMap64 | None) -> BatchFunction:
    """The function that Spark ships to write rows, which arrive sorted by key and with these columns.

    `keys` are the keys that rows may have, or None for any.
    """
    positions = {name: position for position, name in enumerate(names)}

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        groups = whole_keys(batch for batch in batches if len(batch))
        first = next(groups, None)
        if first is None:
            return
        with ViewWriter(target, keys) as writer:
            for group in chain([first], groups):
                columns = [cast_values(group.column(positions[f.name]), f.type) for f in target.output]
                writer.put(pa.record_batch(columns, schema=target.output))
            answer = pickle.dumps(writer.finish())
        yield pa.record_batch([pa.array([answer], pa.binary())], names=["answer"])

    return write


def whole_keys(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Re-cuts batches that are sorted by key so that no two of them contain the same key."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        keys = batch.column(KEY).to_numpy()
        if pending and pending[-1].column(KEY)[-1].as_py() != keys[0]:
            yield _concatenated(pending)
            pending = []
        start = int(np.searchsorted(keys, keys[-1]))
        if start:
            yield _concatenated([*pending, batch.slice(0, start)])
            pending = []
        pending.append(batch.slice(start))
    if pending:
        yield _concatenated(pending)


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(list(batches))


def cast_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts values to another type. Raises ValueError if they do not fit."""
    # Copies: Lance cannot use decimals in place in the buffers of Spark's stream.
    return _converted(pa.concat_arrays([column, column.slice(0, 0)]), kind)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if not _holds_vectors(kind):
        return column.cast(kind)
    if pa.types.is_fixed_size_list(kind):
        return _vectors(column, kind)
    if pa.types.is_struct(kind):
        parts = [_converted(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    list_class = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    values = _converted(column.values, kind.value_type)
    return list_class.from_arrays(column.offsets, values, type=kind, mask=column.is_null())


def _holds_vectors(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_vectors(field.type) for field in kind)
    return pa.types.is_fixed_size_list(kind) or (is_list(kind) and _holds_vectors(kind.value_type))


def _vectors(column: pa.ListArray, kind: pa.FixedSizeListType) -> pa.Array:
    """Replaces Arrow's own cast, which crashes if all lists are null (pyarrow 26)."""
    size = kind.list_size
    lengths = pc.list_value_length(column).drop_null()
    if pc.any(pc.not_equal(lengths, size)).as_py():
        raise ValueError(f"a list does not have the length {size} that the column requires")
    values = _converted(column.flatten(), kind.value_type)
    if not column.null_count:
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    starts = np.where(is_null, 0, (np.cumsum(~is_null) - 1) * size)
    indices = (starts[:, None] + np.arange(size)).ravel()
    filled = values.take(pa.array(indices, mask=np.repeat(is_null, size)))
    return pa.FixedSizeListArray.from_arrays(filled, type=kind, mask=column.is_null())
