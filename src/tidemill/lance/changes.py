"""Finds the rows that changed between two versions of a table.

Incremental backfills, refreshes and checkpoints call `find_changes` with the version they last saw. Reading
and comparing all rows would be correct but slow, so this module works in two steps:

1. It judges the transaction of every version in between by what it can have done to existing rows (`Effect`).
   Most need no look at data: appends, deletes, compactions, indexes, and updates of unrelated columns.
2. For the rest, the row lineage (`_row_last_updated_at_version`) or the rewritten fragments give candidate
   rows, and only those whose watched values really differ (`same_values`) count as changed. Lineage records
   writes, not changes.

When in doubt the answer is `is_total`: an overwrite, a restore, a missing transaction or an unknown operation
makes the caller recompute everything. Missing a change would leave stale results for good, while reporting
too many only costs time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from pyroaring import BitMap64

from tidemill.catalog.storage_failures import storage_failure
from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.coverage import Changes, Watched, row_set, top_level
from tidemill.lance.fingerprints import fingerprints


def check_gone(error: Exception) -> None:
    """A version that cannot be read is gone, unless storage does not answer: then nothing is known about it.

    Raises Unavailable.
    """
    failure = storage_failure(error, "an earlier version")
    if failure is not None:
        raise failure from error


class Effect(Enum):
    """What a transaction may have done to existing rows, judged for the given fields."""

    NONE = "none"
    # Only adds or removes rows; the lineage of the remaining rows is unchanged.
    ROWS = "rows"
    # Rewrites rows; the lineage tells which.
    UPDATE = "update"
    # Rewrites input columns of whole fragments, which the lineage may not show.
    FRAGMENTS = "fragments"
    TOTAL = "total"


@dataclass(frozen=True)
class Step:
    """The judgement on the transaction of one version."""

    version: int
    effect: Effect
    fragments: tuple[int, ...] = ()
    reason: str | None = None


def find_changes(dataset: lance.LanceDataset, base: int, watched: Watched) -> Changes:
    """Rows whose watched values changed in the versions (base, dataset.version].

    In a table without stable row ids a row's id is its address, which is not reused except after an overwrite
    or restore. There an updated or moved row appears as one removed row and one added row.
    The base version itself may have been cleaned up: what only it could tell then counts as changed.
    """
    if base > dataset.version:
        return Changes(is_total=True, reason=f"version {base} is gone")
    inputs, every = field_ids(dataset, watched.inputs), field_ids(dataset, watched.columns)
    steps: list[Step] = []
    for version in range(base + 1, dataset.version + 1):
        step = _judge(dataset, version, inputs if version in watched.own_versions else every)
        if step.effect is Effect.TOTAL:
            return Changes(is_total=True, reason=step.reason)
        steps.append(step)
    updated = BitMap64()
    for begin, end in _update_runs(steps):
        at_end = dataset.checkout_version(end)
        updated |= _changed_fields(dataset, begin, at_end, _rows_updated(at_end, begin), watched)
    for step in steps:
        if step.effect is Effect.FRAGMENTS:
            at_end = dataset.checkout_version(step.version)
            rows = _rows_of(at_end, step.fragments)
            updated |= _changed_fields(dataset, step.version - 1, at_end, rows, watched)
    return Changes(updated)


def _changed_fields(
    dataset: lance.LanceDataset, begin: int, at_end: lance.LanceDataset, rows: BitMap64, watched: Watched
) -> BitMap64:
    """As `changed_since`, for the fields that have the watched names in `dataset`.

    Between the two versions no field is renamed, but it may have had another name than it has now.
    """
    wanted = {field.id() for field in dataset.lance_schema.fields() if field.name() in watched.columns}
    names = [field.name() for field in at_end.lance_schema.fields() if field.id() in wanted]
    return changed_since(dataset, begin, at_end, rows, Watched(tuple(names)))


def changed_since(
    dataset: lance.LanceDataset, begin: int, at_end: lance.LanceDataset, rows: BitMap64, watched: Watched
) -> BitMap64:
    """Those of the rows whose values differ since `begin`; all of them if that version cannot be read."""
    if not rows:
        return rows
    present = [name for name in watched.columns if name in at_end.schema.names]
    try:
        before = dataset.checkout_version(begin)
        if any(name not in before.schema.names for name in present):
            return rows
        return rows_that_differ(before, at_end, rows, present)
    except (OSError, ValueError) as error:
        check_gone(error)
        return rows


def field_ids(dataset: lance.LanceDataset, columns: Iterable[str]) -> frozenset[int]:
    """Field ids of these top-level columns and of everything inside them; unknown columns have none."""
    wanted = {top_level(column) for column in columns}
    found: set[int] = set()
    for field in dataset.lance_schema.fields():
        if field.name() in wanted:
            found |= _with_children(field)
    return frozenset(found)


def _with_children(field: Any) -> set[int]:
    ids = {field.id()}
    for child in field.children():
        ids |= _with_children(child)
    return ids


def _judge(dataset: lance.LanceDataset, version: int, fields: frozenset[int]) -> Step:
    try:
        transaction = dataset.read_transaction(version)
    except (OSError, ValueError) as error:
        check_gone(error)
        transaction = None
    except TypeError as error:
        if not is_compaction_of_indexes(error):
            raise
        return Step(version, Effect.NONE)
    if transaction is None:
        return Step(version, Effect.TOTAL, reason=f"the log of version {version} is gone")
    operation = transaction.operation
    match operation:
        case LanceOperation.Append() | LanceOperation.Delete():
            return Step(version, Effect.ROWS)
        case LanceOperation.Rewrite() | LanceOperation.CreateIndex() | LanceOperation.UpdateConfig():
            return Step(version, Effect.NONE)
        case LanceOperation.Update():
            return _judge_update(version, operation, fields, has_stable_row_ids=dataset.has_stable_row_ids)
        case LanceOperation.DataReplacement():
            hit = [g.fragment_id for g in operation.replacements if not fields.isdisjoint(g.new_file.fields)]
            return Step(version, Effect.FRAGMENTS if hit else Effect.NONE, tuple(hit))
        case LanceOperation.Overwrite() | LanceOperation.Restore():
            name = type(operation).__name__.lower()
            return Step(version, Effect.TOTAL, reason=f"version {version} is an {name}")
        case _:
            return _judge_by_files(dataset, version, fields, type(operation).__name__)


def is_compaction_of_indexes(error: TypeError) -> bool:
    """Whether pylance failed on the transaction of a compaction that also rewrote an index."""
    return "RewrittenIndex" in str(error)


def _judge_by_files(dataset: lance.LanceDataset, version: int, fields: frozenset[int], name: str) -> Step:
    """Judges schema changes and operations unknown to pylance: harmless if the input files are the same.

    A column added without values has no files, but an older column of that name may have had some.
    """
    try:
        before = dataset.checkout_version(version - 1)
    except (OSError, ValueError) as error:
        check_gone(error)
        return Step(version, Effect.TOTAL, reason=f"version {version - 1} is gone")
    after = dataset.checkout_version(version)
    has_same_fields = fields.isdisjoint(_all_fields(after) - _all_fields(before))
    if has_same_fields and _input_files(before, fields) == _input_files(after, fields):
        return Step(version, Effect.NONE)
    return Step(version, Effect.TOTAL, reason=f"version {version} rewrote input columns ({name})")


def _judge_update(
    version: int, operation: LanceOperation.Update, fields: frozenset[int], *, has_stable_row_ids: bool
) -> Step:
    if operation.update_mode != "rewrite_columns":
        if has_stable_row_ids:
            return Step(version, Effect.UPDATE)
        if operation.update_mode == "rewrite_rows":
            return Step(version, Effect.ROWS)
        return Step(version, Effect.TOTAL, reason=f"version {version} is an update of an unknown kind")
    if fields.isdisjoint(operation.fields_modified):
        return Step(version, Effect.NONE)
    return Step(version, Effect.FRAGMENTS, tuple(f.id for f in operation.updated_fragments))


def _update_runs(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Ranges (begin, end] with updates and nothing that rewrites the lineage for another reason."""
    begin: int | None = None
    end = 0
    for step in steps:
        if step.effect is Effect.UPDATE:
            begin = step.version - 1 if begin is None else begin
            end = step.version
        elif step.effect is not Effect.ROWS and begin is not None:
            yield begin, end
            begin = None
    if begin is not None:
        yield begin, end


def _rows_updated(at_end: lance.LanceDataset, begin: int) -> BitMap64:
    rows = at_end.scanner(
        columns=[],
        filter=f"_row_last_updated_at_version > {begin} AND _row_created_at_version <= {begin}",
        with_row_id=True,
    ).to_table()
    return row_set(rows["_rowid"].to_numpy())


def _rows_of(dataset: lance.LanceDataset, fragment_ids: Sequence[int]) -> BitMap64:
    fragments = [f for f in dataset.get_fragments() if f.fragment_id in set(fragment_ids)]
    rows = dataset.scanner(columns=[], with_row_id=True, fragments=fragments).to_table()
    return row_set(rows["_rowid"].to_numpy())


def _input_files(dataset: lance.LanceDataset, fields: frozenset[int]) -> dict[int, frozenset[str]]:
    return {fragment.fragment_id: files_of(fragment, fields) for fragment in dataset.get_fragments()}


def _all_fields(dataset: lance.LanceDataset) -> frozenset[int]:
    return field_ids(dataset, dataset.schema.names)


def files_of(fragment: lance.LanceFragment, fields: frozenset[int]) -> frozenset[str]:
    """The data files of a fragment that contain any of the fields."""
    return frozenset(str(file.path) for file in fragment.data_files() if not fields.isdisjoint(file.fields))


BATCH_ROWS: Final = 65536
ROW_ID: Final = "_rowid"
# Floats are compared by their bits, so that NaN equals NaN and -0.0 does not equal 0.0.
BITS: Final = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def rows_that_differ(
    before: lance.LanceDataset, after: lance.LanceDataset, rows: BitMap64, columns: Sequence[str]
) -> BitMap64:
    """The rows whose values in the columns differ between the versions."""
    ids = np.array(rows.to_array(), dtype=np.uint64)
    differing = [
        _differing(before, after, ids[start : start + BATCH_ROWS], columns)
        for start in range(0, len(ids), BATCH_ROWS)
    ]
    return row_set(np.concatenate(differing)) if differing else BitMap64()


def _differing(
    before: lance.LanceDataset,
    after: lance.LanceDataset,
    ids: npt.NDArray[np.uint64],
    columns: Sequence[str],
) -> npt.NDArray[np.uint64]:
    first, second = _read(before, ids, columns), _read(after, ids, columns)
    common = np.intersect1d(_ids(first), _ids(second), assume_unique=True)
    first, second = _narrowed(first, common), _narrowed(second, common)
    is_same = np.ones(len(common), dtype=np.bool_)
    for number in range(len(columns)):
        is_same &= same_values(_column(first, number), _column(second, number))
    return np.union1d(common[~is_same], np.setdiff1d(ids, common, assume_unique=True))


def same_values(first: pa.Array, second: pa.Array) -> npt.NDArray[np.bool_]:
    """Compares two arrays of the same length element by element and bit by bit; works for every type."""
    if first.type != second.type:
        return np.zeros(len(first), dtype=np.bool_)
    if pa.types.is_floating(first.type):
        bits = BITS[first.type.bit_width]
        first, second = first.view(bits), second.view(bits)
    if not pa.types.is_nested(first.type) and not isinstance(first, pa.ExtensionArray):
        try:
            return _equal(first, second)
        except pa.ArrowNotImplementedError:
            pass
    is_same: npt.NDArray[np.bool_] = fingerprints([first]) == fingerprints([second])
    return is_same


def _equal(first: pa.Array, second: pa.Array) -> npt.NDArray[np.bool_]:
    if first.equals(second):
        return np.ones(len(first), dtype=np.bool_)
    equal = pc.fill_null(pc.equal(first, second), fill_value=False)
    both_null = pc.and_(first.is_null(), second.is_null())
    is_equal: npt.NDArray[np.bool_] = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return is_equal


def _read(dataset: lance.LanceDataset, ids: npt.NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
    wanted = {f"c{number}": quoted(name) for number, name in enumerate(columns)}
    return dataset._take_rows(ids, columns={**wanted, ROW_ID: ROW_ID}, blob_handling="all_binary")


def _ids(table: pa.Table) -> npt.NDArray[np.uint64]:
    row_ids: npt.NDArray[np.uint64] = table[ROW_ID].to_numpy()
    return row_ids


def _narrowed(table: pa.Table, common: npt.NDArray[np.uint64]) -> pa.Table:
    """The rows with these ids, in ascending order of id."""
    ids = _ids(table)
    order = np.argsort(ids, kind="stable")
    if len(ids) == len(common) and np.array_equal(ids, common):
        return table
    return table.take(pa.array(order[np.isin(ids[order], common, assume_unique=True)]))


def _column(table: pa.Table, number: int) -> pa.Array:
    return pa.concat_arrays(table.column(number).chunks) if table.num_rows else pa.nulls(0)
