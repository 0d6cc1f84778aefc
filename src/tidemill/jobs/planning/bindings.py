"""Follows renamed fields, so that computed columns keep their functions and inputs.

A computed column is declared by names, but it belongs to fields. Clients rename fields through commits of
their own, with or without the catalog, and a field keeps its id when it gets another name. So the ids are
recorded with the declaration, and whoever looks at a table's columns compares them with its schema first:

- the field has another name: the declaration follows, as if it had been renamed through the catalog;
- the field is gone: the name stands for whatever field has it now. Nothing is known of its values then, so
  they are compared one by one (see `tidemill.lance.freshness`).

Ids of dropped fields may be given to new ones, and an overwrite gives new ids to all. So fields are traced
version by version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemill.catalog.auditing import acting
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.jobs.model.columns import ComputedColumn
from tidemill.jobs.model.plans import TableSnapshot
from tidemill.jobs.ports import JobStore
from tidemill.jobs.table_ports import SourceTables


class ColumnBindings:
    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources

    def columns_of(
        self, table: Table, snapshot: TableSnapshot | None = None
    ) -> Sequence[tuple[ComputedColumn, Function]]:
        """The computed columns under the names that their fields have in a version of the table.

        Without a snapshot that is the latest one. On the main branch the names are recorded; a branch has
        names of its own.
        """
        with self._store.reading() as tx:
            stored = [
                (column, tx.functions.get(column.function_key))
                for column in tx.derived.list_columns(table.table_id)
            ]
        if not stored:
            return []
        snapshot = snapshot or self._sources.snapshot(table, None)
        followed = [
            (self._followed(table, snapshot, column, function), function) for column, function in stored
        ]
        changed = [new for (old, _), (new, _) in zip(stored, followed, strict=True) if _differs(old, new)]
        if changed and table.branch == MAIN_BRANCH:
            self._record(changed)
        return followed

    def _record(self, columns: Sequence[ComputedColumn]) -> None:
        """Unless they were declared again in the meantime."""
        with acting(None), self._store.transaction() as tx:
            stored = {column.column_id: column for column in tx.derived.list_columns(columns[0].table_id)}
            for column in columns:
                found = stored.get(column.column_id)
                is_older = found is not None and found.bound_version <= column.bound_version
                if found is not None and is_older and found.function_key == column.function_key:
                    tx.derived.bind_column(column)

    def _followed(
        self, table: Table, snapshot: TableSnapshot, column: ComputedColumn, function: Function
    ) -> ComputedColumn:
        fields, names_now = snapshot.field_ids, {}
        by_id = {field_id: name for name, field_id in fields.items()}
        for name, field_id in column.field_ids.items():
            is_fixed = function.is_expression and name not in column.names
            if fields.get(name) == field_id or is_fixed:
                continue
            if snapshot.version <= column.bound_version:
                names_now[name] = by_id.get(field_id, name)
            else:
                since = column.bound_version
                names_now[name] = self._sources.trace_field(table, name, field_id, since, snapshot.version)
        renamed = column.renamed(names_now)
        bound = {name: fields[name] for name in renamed.names_used if name in fields}
        if bound == column.field_ids:
            return column
        return replace(renamed, field_ids=bound, bound_version=snapshot.version)


def _differs(old: ComputedColumn, new: ComputedColumn) -> bool:
    return old.names_used != new.names_used or old.field_ids != new.field_ids
