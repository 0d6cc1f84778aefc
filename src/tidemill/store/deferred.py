"""Deferred writes: bookkeeping of a version that is applied once its manifest is in place.

A job that publishes a version also records what the version holds: coverage, its part in the ledger, row
errors. The version counts only once its manifest has its final name, and a writer that bypasses the catalog
may take that name first. Recording the bookkeeping right away would then claim results that no version
contains.

So there are two steps:

1. The transaction that reserves the version number runs all checks against a `DeferringTransaction`. Its
   repositories append these writes to a `DeferredLog`, which is stored in the version's row.
2. When the manifest is in place, the job (or, after a crash, the next reader) calls `apply_deferred` and
   clears the row in one transaction. If another writer took the name, the row is deleted together with its
   log.

The log is JSON: a list of [method, arguments], with bitmaps and bytes in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson
import structlog
from pyroaring import BitMap64
from sqlalchemy import Connection, select

from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.jobs.model.columns import ColumnOutput, ComputedColumn
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.jobs import Part
from tidemill.store.bookkeeping import SqlCoverageRepository, SqlPartLedger, SqlRowErrorLedger
from tidemill.store.derived import SqlDerivedRepository, owner_of, owner_values
from tidemill.store.schema import ROOT_ID, functions
from tidemill.store.tables import SqlTableRepository

log = structlog.get_logger("tidemill.store")

Write: TypeAlias = tuple[str, Mapping[str, Any]]


class DeferredLog:
    """The deferred writes of one version, in order."""

    def __init__(self) -> None:
        self._writes: list[Write] = []

    def add(self, method: str, **arguments: Any) -> None:
        self._writes.append((method, arguments))

    def packed(self) -> bytes | None:
        return orjson.dumps(self._writes) if self._writes else None


class DeferringTables(SqlTableRepository):
    def __init__(self, connection: Connection, log: DeferredLog) -> None:
        super().__init__(connection)
        self._log = log

    def set_properties(self, table_id: UUID, properties: Mapping[str, str]) -> None:
        self._log.add("set_properties", table_id=table_id, properties=dict(properties))


class DeferringParts(SqlPartLedger):
    def __init__(self, connection: Connection, log: DeferredLog) -> None:
        super().__init__(connection)
        self._log = log

    def add(self, part: Part) -> None:
        self.check_new(part)
        self._log.add(
            "add_part",
            job_id=part.job_id,
            part=part.part,
            epoch=part.epoch,
            table_id=part.table_id,
            version=part.version,
            rows=_base64(part.rows),
        )


class DeferringCoverage(SqlCoverageRepository):
    def __init__(self, connection: Connection, log: DeferredLog) -> None:
        super().__init__(connection)
        self._log = log

    def put(self, subject_id: UUID, coverage: Coverage) -> None:
        self.check_revision(subject_id, coverage)
        self._log.add(
            "put_coverage",
            subject_id=subject_id,
            digest=coverage.digest,
            watermark=coverage.watermark,
            rows=_base64(coverage.rows.serialize()),
            revision=coverage.revision,
            published=coverage.published,
            outdated=_base64(coverage.outdated.serialize()),
            files=_base64(coverage.files.serialize()),
            segments=list(coverage.segments),
        )

    def withdraw(
        self, subject_id: UUID, digest: str, rows: BitMap64, kept_digests: Collection[str] = ()
    ) -> None:
        self._log.add(
            "withdraw",
            subject_id=subject_id,
            digest=digest,
            rows=_base64(rows.serialize()),
            kept_digests=sorted(kept_digests),
        )


class DeferringErrors(SqlRowErrorLedger):
    def __init__(self, connection: Connection, log: DeferredLog) -> None:
        super().__init__(connection)
        self._log = log

    def settle(self, subject_id: UUID, done: BitMap64 | None, errors: Sequence[RowError]) -> None:
        self._log.add(
            "settle_errors",
            subject_id=subject_id,
            done=None if done is None else _base64(done.serialize()),
            errors=[_error_values(error) for error in errors],
        )


class DeferringDerived(SqlDerivedRepository):
    """Defers changes to columns only: a view is defined in the transaction that creates its table."""

    def __init__(self, connection: Connection, log: DeferredLog) -> None:
        super().__init__(connection)
        self._log = log

    def add_column(self, column: ComputedColumn) -> None:
        values = asdict(replace(column, owner=None)) | owner_values(column.owner)
        self._log.add("add_column", **values)

    def remove_column(self, table_id: UUID, name: str) -> None:
        self._log.add("remove_column", table_id=table_id, name=name)

    def rename_columns(self, table_id: UUID, names: Mapping[str, str]) -> None:
        self._log.add("rename_columns", table_id=table_id, names=dict(names))


def apply_deferred(connection: Connection, deferred: bytes) -> None:
    """Applies a version's deferred writes, skipping those that conflict with a later change.

    The later change wins. If coverage was updated or deleted since the version was reserved, nothing is
    claimed, so at worst the rows are recomputed.
    """
    for method, arguments in orjson.loads(deferred):
        try:
            APPLY[method](connection, arguments)
        except (ConcurrentModification, TableNotFound) as error:
            log.warning("a deferred write no longer applies", write=method, problem=str(error))


def _set_properties(connection: Connection, values: Mapping[str, Any]) -> None:
    tables = SqlTableRepository(connection)
    tables.set_properties(UUID(values["table_id"]), values["properties"])


def _add_part(connection: Connection, values: Mapping[str, Any]) -> None:
    part = Part(
        values["job_id"],
        values["part"],
        values["epoch"],
        UUID(values["table_id"]),
        values["version"],
        b64decode(values["rows"]),
    )
    SqlPartLedger(connection).add(part)


def _put_coverage(connection: Connection, values: Mapping[str, Any]) -> None:
    coverage = Coverage(
        digest=values["digest"],
        watermark=values["watermark"],
        rows=_bitmap(values["rows"]),
        revision=values["revision"],
        published=values["published"],
        outdated=_bitmap(values["outdated"]),
        # Written by an earlier release, a log has neither.
        files=_bitmap(values["files"]) if "files" in values else BitMap64(),
        segments=tuple(values.get("segments", ())),
    )
    SqlCoverageRepository(connection).put(UUID(values["subject_id"]), coverage)


def _withdraw(connection: Connection, values: Mapping[str, Any]) -> None:
    coverage = SqlCoverageRepository(connection)
    rows, kept = _bitmap(values["rows"]), values.get("kept_digests", ())
    coverage.withdraw(UUID(values["subject_id"]), values["digest"], rows, kept)


def _settle_errors(connection: Connection, values: Mapping[str, Any]) -> None:
    done = None if values["done"] is None else _bitmap(values["done"])
    errors = [_error(error_values) for error_values in values["errors"]]
    SqlRowErrorLedger(connection).settle(UUID(values["subject_id"]), done, errors)


def _add_column(connection: Connection, values: Mapping[str, Any]) -> None:
    column = ComputedColumn(
        column_id=UUID(values["column_id"]),
        table_id=UUID(values["table_id"]),
        name=values["name"],
        function_digest=values["function_digest"],
        inputs=tuple(values["inputs"]),
        siblings=tuple(ColumnOutput(**output) for output in values["siblings"]),
        has_auto_backfill=values["has_auto_backfill"],
        field_ids=values.get("field_ids", {}),
        bound_version=values.get("bound_version", 0),
        # A version may have been reserved before there were kept values.
        kept_digests=tuple(values.get("kept_digests", ())),
        function_namespace_id=_function_namespace(connection, values),
        owner=owner_of(values.get("owner"), values.get("owner_roles", ())),
    )
    SqlDerivedRepository(connection).add_column(column)


def _function_namespace(connection: Connection, values: Mapping[str, Any]) -> UUID:
    """Written by an earlier release, a log has none: a digest was registered once then."""
    if "function_namespace_id" in values:
        return UUID(values["function_namespace_id"])
    query = select(functions.c.namespace_id).where(functions.c.digest == values["function_digest"])
    return connection.scalar(query.limit(1)) or ROOT_ID


def _remove_column(connection: Connection, values: Mapping[str, Any]) -> None:
    SqlDerivedRepository(connection).remove_column(UUID(values["table_id"]), values["name"])


def _rename_columns(connection: Connection, values: Mapping[str, Any]) -> None:
    SqlDerivedRepository(connection).rename_columns(UUID(values["table_id"]), values["names"])


def _rename_column(connection: Connection, values: Mapping[str, Any]) -> None:
    """As an earlier release has written it."""
    names = {values["name"]: values["new_name"]}
    SqlDerivedRepository(connection).rename_columns(UUID(values["table_id"]), names)


APPLY: Final[Mapping[str, Callable[[Connection, Mapping[str, Any]], None]]] = {
    "set_properties": _set_properties,
    "add_part": _add_part,
    "put_coverage": _put_coverage,
    "withdraw": _withdraw,
    "settle_errors": _settle_errors,
    "add_column": _add_column,
    "remove_column": _remove_column,
    "rename_column": _rename_column,
    "rename_columns": _rename_columns,
}


def _error_values(error: RowError) -> dict[str, Any]:
    failure = error.failure
    return {
        "subject_id": error.subject_id,
        "digest": error.digest,
        "job_id": error.job_id,
        "row_id": failure.row_id,
        "exception": _without_surrogates(failure.exception),
        "message": _without_surrogates(failure.message),
        "traceback": _without_surrogates(failure.traceback),
        "attempts": failure.attempts,
        "is_skipped": error.is_skipped,
    }


def _error(values: Mapping[str, Any]) -> RowError:
    failure = RowFailure(
        values["row_id"], values["exception"], values["message"], values["traceback"], values["attempts"]
    )
    return RowError(
        UUID(values["subject_id"]), values["digest"], values["job_id"], failure, values["is_skipped"]
    )


def _without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which JSON cannot represent but an exception message may contain."""
    return text.encode("utf-8", "replace").decode()


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _bitmap(text: str) -> BitMap64:
    return BitMap64.deserialize(b64decode(text))
