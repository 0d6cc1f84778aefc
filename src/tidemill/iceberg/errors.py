"""Errors of Iceberg tables and views; clients and test suites match on Iceberg's own messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import ErrorCode, TidemillError
from tidemill.iceberg.model.entries import EntryKind, Holder

# What a name of the Lance protocol stands for.
LANCE_NOUNS: Final[Mapping[Holder, str]] = {
    Holder.LANCE_TABLE: "a Lance table",
    Holder.MATERIALIZED_VIEW: "a materialized view",
    Holder.STORED_QUERY: "a view of the Lance protocol",
}
ICEBERG_NOUNS: Final[Mapping[Holder, str]] = {
    Holder.ICEBERG_TABLE: "an Iceberg table",
    Holder.ICEBERG_VIEW: "an Iceberg view",
}


class IcebergTableNotFound(TidemillError):
    """`holder` is what has the name instead."""

    code = ErrorCode.TABLE_NOT_FOUND

    def __init__(self, ident: TableIdent, holder: Holder | None = None) -> None:
        super().__init__(_not_found("Table", ident, holder))
        self.ident = ident
        self.holder = holder


class IcebergViewNotFound(TidemillError):
    """`holder` is what has the name instead."""

    code = ErrorCode.VIEW_NOT_FOUND

    def __init__(self, ident: TableIdent, holder: Holder | None = None) -> None:
        super().__init__(_not_found("View", ident, holder))
        self.ident = ident
        self.holder = holder


def _not_found(noun: str, ident: TableIdent, holder: Holder | None) -> str:
    missing = f"{noun} does not exist: {ident}"
    if holder is None:
        return missing
    if holder in ICEBERG_NOUNS:
        return f"{missing}; it is {ICEBERG_NOUNS[holder]}"
    other = f"{ident} is {LANCE_NOUNS[holder]}"
    return f"{other}, not an Iceberg {noun.lower()}; use the Lance REST API of this server"


class NameTaken(TidemillError):
    """Tables and views of both formats share one set of names."""

    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, ident: TableIdent, wanted: EntryKind, holder: Holder) -> None:
        is_same_kind = (holder is Holder.ICEBERG_VIEW) is (wanted is EntryKind.VIEW)
        noun = "View" if holder is Holder.ICEBERG_VIEW else "Table"
        same_name = "" if is_same_kind else "with same name "
        super().__init__(f"{noun} {same_name}already exists: {ident}{_lance_note(holder)}")
        self.holder = holder


class RenameTargetTaken(TidemillError):
    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, source: TableIdent, target: TableIdent, holder: Holder) -> None:
        noun = "View" if holder is Holder.ICEBERG_VIEW else "Table"
        super().__init__(f"Cannot rename {source} to {target}. {noun} already exists{_lance_note(holder)}")


def _lance_note(holder: Holder) -> str:
    return f" ({LANCE_NOUNS[holder]})" if holder in LANCE_NOUNS else ""


class InvalidMetadata(TidemillError):
    """The result would not be a valid table or view; uses Iceberg's own message where there is one."""

    code = ErrorCode.INVALID_METADATA


class RequirementFailed(TidemillError):
    code = ErrorCode.CONCURRENT_MODIFICATION

    def __init__(self, problem: str) -> None:
        super().__init__(f"Requirement failed: {problem}")


class CommitConflict(TidemillError):
    """The commit was made for a state that is no longer current; the client may reload and retry."""

    code = ErrorCode.CONCURRENT_MODIFICATION


class MetadataFileNotFound(TidemillError):
    code = ErrorCode.FILE_NOT_FOUND

    def __init__(self, location: str) -> None:
        super().__init__(f"Failed to open input stream for file: {location}")


class PlanNotFound(TidemillError):
    code = ErrorCode.PLAN_NOT_FOUND

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"Plan does not exist: {plan_id:.100}")


class PlanTaskNotFound(TidemillError):
    code = ErrorCode.PLAN_TASK_NOT_FOUND

    def __init__(self, plan_task: str) -> None:
        super().__init__(f"Plan task does not exist: {plan_task:.100}")
