"""Where the values of a column come from, which are out of date, and on which rows the function failed."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.model.derived import subject_of
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import BackfillRequest, RowSelection
from tidemill.jobs.model.provenance import ColumnStatus, FunctionRows
from tidemill.jobs.planning.assess import Assessor, DeclaredColumn
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.ports import JobStore, TableVersions


class ColumnProvenance:
    def __init__(
        self, store: JobStore, authorizer: Authorizer, versions: TableVersions, assessor: Assessor
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor

    def status(self, caller: Caller, ident: TableIdent, column: str, branch: str | None) -> ColumnStatus:
        declared = self._assessor.get_column(self._table(caller, ident, branch), column)
        progress, live = self._look(declared)
        fresh, stale = progress.current.rows & live, progress.stale & live
        return ColumnStatus(
            column=column,
            branch=declared.table.branch,
            version=progress.snapshot.version,
            rows=len(live),
            fresh=len(fresh),
            stale=len(stale),
            missing=len(live - fresh - stale),
            failed=len(progress.failed & live),
            functions=self._functions(declared, live),
        )

    def rows(
        self,
        caller: Caller,
        ident: TableIdent,
        column: str,
        branch: str | None,
        selection: RowSelection,
        after: int | None,
        limit: int,
    ) -> Sequence[int]:
        """Ids of the rows, ascending, above `after`."""
        declared = self._assessor.get_column(self._table(caller, ident, branch), column)
        progress, live = self._look(declared)
        match selection:
            case RowSelection.STALE:
                found = progress.stale & live
            case RowSelection.MISSING:
                found = live - progress.current.rows - progress.stale
            case RowSelection.FAILED:
                found = progress.failed & live
        if after is not None:
            found -= _up_to(after)
        return list(found[:limit])

    def errors(
        self,
        caller: Caller,
        ident: TableIdent,
        column: str | None,
        branch: str | None,
        *,
        job_id: str | None = None,
        after: int | None = None,
        limit: int = 1000,
    ) -> Sequence[tuple[str, RowError]]:
        """Columns with the rows their functions failed on; of all columns when none is named."""
        table = self._table(caller, ident, branch)
        if column is not None:
            columns = [self._assessor.get_column(table, column).column]
        else:
            with self._store.transaction() as tx:
                columns = list(tx.derived.list_columns(table.table_id))
        found: list[tuple[str, RowError]] = []
        with self._store.transaction() as tx:
            for declared in columns:
                subject_id = subject_of(declared.column_id, table.branch)
                errors = tx.errors.list_of(subject_id, after, limit - len(found), job_id)
                found += [(declared.name, error) for error in errors]
        return found

    def _look(self, declared: DeclaredColumn) -> tuple[ColumnProgress, BitMap64]:
        progress = self._assessor.column_progress(
            declared, BackfillRequest(declared.column.name, only=RowSelection.STALE)
        )
        assert progress.located is not None
        return progress, progress.located.all_rows()

    def _functions(self, declared: DeclaredColumn, live: BitMap64) -> tuple[FunctionRows, ...]:
        current = declared.function.digest
        with self._store.transaction() as tx:
            counted = [
                FunctionRows(
                    found.digest,
                    tx.functions.get(found.digest).name,
                    len(found.held & live),
                    found.digest == current,
                )
                for found in tx.coverage.list_of(declared.subject_id)
            ]
        return tuple(item for item in counted if item.rows or item.is_current)

    def _table(self, caller: Caller, ident: TableIdent, branch: str | None) -> Table:
        self._authorizer.require(caller, Permission.READ, ident)
        return self._versions.get_branch(ident, branch or MAIN_BRANCH)


def _up_to(row_id: int) -> BitMap64:
    rows = BitMap64()
    rows.add_range(0, row_id + 1)
    return rows
