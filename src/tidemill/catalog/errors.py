"""Refusals of the catalog."""

from __future__ import annotations

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.errors import ErrorCode, TidemillError


class NamespaceNotFound(TidemillError):
    code = ErrorCode.NAMESPACE_NOT_FOUND

    def __init__(self, path: NamespacePath) -> None:
        super().__init__(f"Namespace {path} does not exist")
        self.path = path


class NamespaceAlreadyExists(TidemillError):
    code = ErrorCode.NAMESPACE_ALREADY_EXISTS

    def __init__(self, path: NamespacePath) -> None:
        super().__init__(f"Namespace {path} already exists")
        self.path = path


class NamespaceNotEmpty(TidemillError):
    code = ErrorCode.NAMESPACE_NOT_EMPTY

    def __init__(self, path: NamespacePath) -> None:
        super().__init__(f"Namespace {path} is not empty; drop its content first or use behavior 'Cascade'")
        self.path = path


class TableNotFound(TidemillError):
    code = ErrorCode.TABLE_NOT_FOUND

    def __init__(self, table: TableIdent) -> None:
        super().__init__(f"Table {table} does not exist")
        self.table = table


class TableAlreadyExists(TidemillError):
    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, table: TableIdent) -> None:
        super().__init__(f"Table {table} already exists")
        self.table = table


class TableHasNoData(TidemillError):
    code = ErrorCode.INVALID_TABLE_STATE

    def __init__(self, table: TableIdent) -> None:
        super().__init__(f"Table {table} is declared but has no data yet; create it or insert into it first")
        self.table = table


class TableVersionNotFound(TidemillError):
    code = ErrorCode.TABLE_VERSION_NOT_FOUND

    def __init__(self, table: TableIdent, version: int) -> None:
        super().__init__(f"Table {table} has no version {version}")
        self.table = table
        self.version = version


class TableVersionAlreadyExists(TidemillError):
    code = ErrorCode.TABLE_VERSION_ALREADY_EXISTS

    def __init__(self, table: TableIdent, version: int) -> None:
        super().__init__(f"Table {table} already has a version {version}")
        self.table = table
        self.version = version


class TableColumnNotFound(TidemillError):
    code = ErrorCode.TABLE_COLUMN_NOT_FOUND

    def __init__(self, table: TableIdent, column: str, known: tuple[str, ...] = ()) -> None:
        hint = f"; its columns are {', '.join(known)}" if known else ""
        super().__init__(f"Table {table} has no column '{column}'{hint}")
        self.table = table
        self.column = column


class BranchNotFound(TidemillError):
    code = ErrorCode.BRANCH_NOT_FOUND

    def __init__(self, table: TableIdent, branch: str) -> None:
        super().__init__(f"Table {table} has no branch '{branch}'")


class InvalidTableSchema(TidemillError):
    code = ErrorCode.INVALID_TABLE_SCHEMA

    def __init__(self, table: TableIdent, problem: str) -> None:
        super().__init__(f"Table {table}: {problem}")


class FunctionNotFound(TidemillError):
    code = ErrorCode.FUNCTION_NOT_FOUND

    def __init__(self, digest: str) -> None:
        super().__init__(f"There is no function {digest}")


class ConcurrentModification(TidemillError):
    code = ErrorCode.CONCURRENT_MODIFICATION
