"""Builds an index in the worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pyroaring import BitMap64

from tidemill.catalog.errors import TableNotFound
from tidemill.jobs.model.indexes import IndexDefinition, IndexType
from tidemill.jobs.model.jobs import Part
from tidemill.jobs.model.options import IndexRequest
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.table_ports import TableIndexes, TableVersions
from tidemill.jobs.worker.leases import RunningJob

# The one part of an index job: whatever worker comes to it, it is applied once.
INDEX_PART: Final = "index"


class IndexRunner:
    """A worker that dies leaves files behind and nothing else."""

    def __init__(self, store: JobStore, versions: TableVersions, indexes: TableIndexes) -> None:
        self._store = store
        self._versions = versions
        self._indexes = indexes

    def run(self, running: RunningJob, request: IndexRequest) -> dict[str, Any]:
        with self._store.transaction() as tx:
            named = tx.tables.find_by_id(running.job.table_id)
            done = tx.parts.list_of(running.job.job_id)
        if done:
            # The worker before this one published it and had no time to say so.
            return _result(request, done[-1].version)
        if named is None:
            raise TableNotFound(running.job.table)
        table = self._versions.get_branch(named.ident, request.branch)
        rows = self._indexes.count_rows(table)
        running.progress = replace(running.progress, total=rows)
        running.tell("planned", {"rows": rows, "index": request.name, "index_type": request.index_type})
        running.begin_stage()

        def record(tx: JobTransaction, version: int) -> None:
            running.check()
            running.progress = replace(running.progress, done=rows, computed=rows, written=rows, commits=1)
            epoch, nothing = running.lease.epoch, BitMap64().serialize()
            part = Part(running.job.job_id, INDEX_PART, epoch, table.table_id, version, nothing)
            running.record(tx, part)

        version = self._indexes.build(table, definition_of(request), record, running)
        return _result(request, version)


def definition_of(request: IndexRequest) -> IndexDefinition:
    return IndexDefinition(
        name=request.name,
        column=request.column,
        index_type=IndexType(request.index_type),
        parameters=request.parameters,
        is_replacement=request.is_replacement,
    )


def _result(request: IndexRequest, version: int) -> dict[str, Any]:
    return {
        "index_name": request.name,
        "index_type": request.index_type,
        "column": request.column,
        "branch": request.branch,
        "version": version,
    }
