"""Errors of Iceberg tables and views; clients and test suites match on Iceberg's own messages."""

from __future__ import annotations

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import ErrorCode, TidemillError
from tidemill.iceberg.model.entries import EntryKind, Holder


class IcebergTableNotFound(TidemillError):
    code = ErrorCode.TABLE_NOT_FOUND

    def __init__(self, ident: TableIdent) -> None:
        super().__init__(f"Table does not exist: {ident}")


class IcebergViewNotFound(TidemillError):
    code = ErrorCode.VIEW_NOT_FOUND

    def __init__(self, ident: TableIdent) -> None:
        super().__init__(f"View does not exist: {ident}")


class NameTaken(TidemillError):
    """Tables and views of both formats share one set of names."""

    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, ident: TableIdent, wanted: EntryKind, holder: Holder) -> None:
        is_same_kind = (holder is Holder.ICEBERG_VIEW) is (wanted is EntryKind.VIEW)
        noun = "View" if holder is Holder.ICEBERG_VIEW else "Table"
        note = " (a Lance table)" if holder is Holder.LANCE else ""
        super().__init__(f"{noun} {'' if is_same_kind else 'with same name '}already exists: {ident}{note}")
        self.holder = holder


class RenameTargetTaken(TidemillError):
    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, source: TableIdent, target: TableIdent, holder: Holder) -> None:
        noun = "View" if holder is Holder.ICEBERG_VIEW else "Table"
        super().__init__(f"Cannot rename {source} to {target}. {noun} already exists")


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
