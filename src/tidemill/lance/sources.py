"""Lance tables as sources for the planner: snapshots, changes, rows and partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import path_of, quoted
from tidemill.jobs.model.coverage import Changes, Coverage, Watched, key_mask, row_set
from tidemill.jobs.model.plans import FragmentInfo, KeyedRows, RowLocations, TableSnapshot, ViewEdits
from tidemill.jobs.model.views import CHILD_INDEX, Partition, SourceQuery
from tidemill.jobs.stage_errors import VersionGone
from tidemill.lance.changes import check_gone, find_changes
from tidemill.lance.datasets import LanceTableData, translated
from tidemill.lance.evaluation.evaluator import Evaluator, InProcess
from tidemill.lance.evaluation.tables import Tables
from tidemill.lance.filters import check_filter
from tidemill.lance.freshness import changed_rows, check_results, field_paths, trace_field
from tidemill.lance.indexes import index_partitions
from tidemill.lance.key_hashes import key_array
from tidemill.lance.view_edits import find_edits

WORDS: Final = re.compile(r"\w+")
NOBODY: Final = ""


class LanceSourceTables:
    """`evaluator` runs the expressions of clients, none of them for a caller that is known here."""

    def __init__(self, data: LanceTableData, evaluator: Evaluator | None = None) -> None:
        self._data = data
        self._evaluator = evaluator or InProcess()

    def snapshot(self, table: Table, version: int | None) -> TableSnapshot:
        dataset = self._data.open(table, version)
        fragments = (fragment.metadata for fragment in dataset.get_fragments())
        return TableSnapshot(
            version=dataset.version,
            schema=dataset.schema,
            fragments=tuple(
                FragmentInfo(f.id, f.physical_rows, f.physical_rows - f.num_deletions) for f in fragments
            ),
            has_stable_row_ids=dataset.has_stable_row_ids,
            field_ids=field_paths(dataset),
        )

    def trace_field(self, table: Table, path: str, field_id: int, since: int, version: int) -> str:
        return trace_field(self._data.open(table, version), path, field_id, since)

    def changes(self, table: Table, base: int, end: int, watched: Watched) -> Changes:
        if base == end:
            return Changes()
        return find_changes(self._data.open(table, end), base, watched)

    def check_results(self, table: Table, version: int, coverage: Coverage, watched: Watched) -> Changes:
        return check_results(self._data.open(table, version), coverage, watched)

    def changed_rows(self, table: Table, version: int, coverage: Coverage, columns: Sequence[str]) -> Changes:
        return changed_rows(self._data.open(table, version), coverage, columns)

    def locate(self, table: Table, version: int, where: str | None) -> RowLocations:
        if where is not None:
            check_filter(where, "where")
        return self._evaluator.read(NOBODY, _locate, table, version, where)

    def take(
        self, table: Table, version: int, row_ids: npt.NDArray[np.uint64], columns: Sequence[str]
    ) -> pa.Table:
        wanted = {name: path_of(name) for name in columns}
        dataset = self._data.open(table, version)
        return dataset._take_rows(row_ids, columns=wanted, blob_handling="blobs_descriptions")

    def check_where(self, table: Table, where: str) -> None:
        check_filter(where, "where")
        self._evaluator.read(NOBODY, _check_where, table, self._data.latest(table), where)

    def columns_read(
        self, table: Table, query: SourceQuery, inputs: Sequence[str], version: int | None
    ) -> tuple[str, ...]:
        """Columns that the expressions may read, matched by words, since Lance's parser is not available."""
        schema = self._data.open(table, version).schema
        texts = [*(query.columns or {}).values(), query.filter or ""]
        words = {word.lower() for text in texts for word in WORDS.findall(text)}
        bound = {name.split(".")[0].strip("`") for name in inputs}
        return tuple(name for name in schema.names if name in bound or _may_name(words, name))

    def project(self, table: Table, query: SourceQuery, field: str = "source_query") -> pa.Schema:
        if query.filter is not None:
            check_filter(query.filter, f"{field}.filter")
        for alias, expression in (query.columns or {}).items():
            check_filter(expression, f"{field}.columns.{alias}")
        return self._evaluator.read(NOBODY, _project, table, self._data.latest(table), query, field)

    def partitions(self, table: Table, version: int, column: str, where: str | None) -> Sequence[Partition]:
        rows = self._evaluator.read(NOBODY, _partition_keys, table, version, column, where)
        keys, row_ids = key_array([rows[column]]).view(np.int64), rows["_rowid"].to_numpy()
        order = np.lexsort((row_ids, keys))
        starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order][:1])) if len(keys) else keys[:0]
        names = rows[column].take(pa.array(order[starts])).to_pylist()
        parts = np.split(row_ids[order], starts[1:])
        return [
            Partition(int(key), f"{column} = {name}", row_set(part))
            for key, name, part in zip(keys[order[starts]], names, parts, strict=False)
        ]

    def index_partitions(self, table: Table, version: int, column: str) -> Sequence[Partition]:
        return index_partitions(table.ident, self._open_old(table, version), column)

    def key_hashes(self, table: Table, version: int, rows: BitMap64, columns: Sequence[str]) -> BitMap64:
        ids = np.array(rows.to_array(), dtype=np.uint64)
        if not len(ids):
            return BitMap64()
        wanted = {f"c{number}": quoted(name) for number, name in enumerate(columns)}
        try:
            key_columns = self._open_old(table, version)._take_rows(ids, columns=wanted)
        except (OSError, ValueError) as error:
            check_gone(error)
            raise VersionGone(table.ident, version) from error
        return row_set(np.unique(key_array(list(key_columns.columns))))

    def view_edits(self, view: Table, published: int, key: str | None, columns: Sequence[str]) -> ViewEdits:
        dataset = self._data.open(view, None)
        if dataset.version == published:
            return ViewEdits(published)
        try:
            before = dataset.checkout_version(published)
        except (OSError, ValueError) as error:
            check_gone(error)
            return ViewEdits(dataset.version, lost_reason=f"version {published} of the view is gone")
        return find_edits(before, dataset, key, columns)

    def keyed_rows(self, view: Table, version: int, key: str | None, wanted: BitMap64 | None) -> KeyedRows:
        dataset = self._data.open(view, version)
        columns = [] if key is None else [key, *(n for n in (CHILD_INDEX,) if n in dataset.schema.names)]
        rows = dataset.scanner(columns=columns, with_row_id=True).to_table()
        row_ids = rows["_rowid"].to_numpy()
        keys = np.zeros(len(row_ids), np.uint64) if key is None else rows[key].to_numpy().view(np.uint64)
        if wanted is not None:
            is_wanted = key_mask(keys, wanted)
            rows, row_ids, keys = rows.filter(pa.array(is_wanted)), row_ids[is_wanted], keys[is_wanted]
        positions = rows[columns[1]].to_numpy() if len(columns) > 1 else row_ids
        order = np.lexsort((positions, keys))
        return KeyedRows(row_ids[order], keys[order])

    def _open_old(self, table: Table, version: int) -> lance.LanceDataset:
        """Opens a version that may have been cleaned up. Raises VersionGone."""
        try:
            return self._data.open(table, version)
        except (OSError, ValueError, InvalidInput) as error:
            raise VersionGone(table.ident, version) from error


def _may_name(words: set[str], column: str) -> bool:
    """Whether every word of the column's name occurs, which is true for every column that is referenced."""
    return {word.lower() for word in WORDS.findall(column)} <= words


def _locate(tables: Tables, table: Table, version: int, where: str | None) -> RowLocations:
    with translated(table.ident):
        scanner = tables.open(table, version).scanner(
            columns=[], filter=where, with_row_id=True, with_row_address=True
        )
        rows = scanner.to_table()
    return RowLocations(rows["_rowid"].to_numpy(), rows["_rowaddr"].to_numpy() >> np.uint64(32))


def _check_where(tables: Tables, table: Table, version: int, where: str) -> None:
    with translated(table.ident, field="where"):
        tables.open(table, version).scanner(columns=[], filter=where, with_row_id=True).explain_plan()


def _project(tables: Tables, table: Table, version: int, query: SourceQuery, field: str) -> pa.Schema:
    with translated(table.ident, field=field):
        scanner = tables.open(table, version).scanner(
            columns=dict(query.columns or {}),
            filter=query.filter,
            with_row_id=True,
            blob_handling="all_binary",
        )
        scanner.explain_plan()
        projected = scanner.projected_schema
    return pa.schema([projected.field(name) for name in query.columns or {}])


def _partition_keys(tables: Tables, table: Table, version: int, column: str, where: str | None) -> pa.Table:
    return tables.open(table, version).scanner(columns=[column], filter=where, with_row_id=True).to_table()
