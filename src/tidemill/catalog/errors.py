"""Errors of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, close_names
from tidemill.catalog.model.tables import Table
from tidemill.errors import ErrorCode, TidemillError, Unavailable

MAX_LISTED_COLUMNS: Final = 50


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
        super().__init__(f"Namespace {path} is not empty; drop its contents first or use behavior 'Cascade'")
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


class TableStorageMissing(Unavailable):
    """The catalog has versions of the table, but storage has none of its manifests."""

    def __init__(self, table: TableIdent, location: str, version: int) -> None:
        super().__init__(
            f"Table {table} has version {version}, but there is no manifest at {location}. Check that the "
            "storage is mounted and complete; if the data is gone for good, drop or deregister the table"
        )


class InvalidTableState(TidemillError):
    code = ErrorCode.INVALID_TABLE_STATE

    def __init__(self, table: TableIdent, problem: str) -> None:
        super().__init__(f"Table {table}: {problem}")


class HasDependants(TidemillError):
    """Views or computed columns are made from what was to be dropped."""

    code = ErrorCode.INVALID_TABLE_STATE

    def __init__(
        self, what: str, names: Sequence[str], more: int, hidden: int, *, is_plural: bool = False
    ) -> None:
        shown = [*names, f"{more} more"] if more else list(names)
        if hidden:
            noun = "other" if hidden == 1 else "others"
            shown.append(f"{hidden} {noun if names else noun.replace('other', 'object')} you cannot see")
        count = len(names) + more + hidden
        depend = "object depends" if count == 1 else "objects depend"
        super().__init__(
            f"{what} cannot be dropped: {count} {depend} on {'them' if is_plural else 'it'}: "
            f"{', '.join(shown)}. Drop them first, drop "
            "them together with cascade=true, or leave them broken with force=true"
        )


class LocationInUse(TidemillError):
    code = ErrorCode.TABLE_ALREADY_EXISTS

    def __init__(self, location: str) -> None:
        super().__init__(f"Location {location} overlaps the location of another table or view")
        self.location = location


class TableVersionNotFound(TidemillError):
    code = ErrorCode.TABLE_VERSION_NOT_FOUND

    def __init__(self, table: TableIdent, version: int) -> None:
        hint = "" if version else "; versions start at 1"
        super().__init__(f"Table {table} has no version {version}{hint}")
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
        close = " or ".join(f"'{name}'" for name in close_names(column, known))
        question = f"; did you mean {close}?" if close else ""
        listed = ", ".join(known[:MAX_LISTED_COLUMNS])
        more = f" and {len(known) - MAX_LISTED_COLUMNS} more" if len(known) > MAX_LISTED_COLUMNS else ""
        columns = f"{' Its' if question else '; its'} columns are {listed}{more}" if known else ""
        super().__init__(f"Table {table} has no column '{column}'{question}{columns}")
        self.table = table
        self.column = column


class BranchNotFound(TidemillError):
    code = ErrorCode.BRANCH_NOT_FOUND

    def __init__(self, table: TableIdent, branch: str) -> None:
        super().__init__(f"Table {table} has no branch '{branch}'")


class BranchAlreadyExists(TidemillError):
    code = ErrorCode.BRANCH_ALREADY_EXISTS

    def __init__(self, table: TableIdent, branch: str) -> None:
        super().__init__(f"Table {table} already has a branch '{branch}'")


class TableTagNotFound(TidemillError):
    code = ErrorCode.TABLE_TAG_NOT_FOUND

    def __init__(self, table: TableIdent, tag: str) -> None:
        super().__init__(f"Table {table} has no tag '{tag}'")


class TableTagAlreadyExists(TidemillError):
    code = ErrorCode.TABLE_TAG_ALREADY_EXISTS

    def __init__(self, table: TableIdent, tag: str) -> None:
        super().__init__(f"Table {table} already has a tag '{tag}'")


class TableIndexNotFound(TidemillError):
    code = ErrorCode.TABLE_INDEX_NOT_FOUND

    def __init__(self, table: TableIdent, index: str) -> None:
        super().__init__(f"Table {table} has no index '{index}'")


class TableIndexAlreadyExists(TidemillError):
    code = ErrorCode.TABLE_INDEX_ALREADY_EXISTS

    def __init__(self, table: TableIdent, index: str) -> None:
        super().__init__(f"Table {table} already has an index '{index}'")


class TransactionNotFound(TidemillError):
    code = ErrorCode.TRANSACTION_NOT_FOUND

    def __init__(self, transaction: str) -> None:
        super().__init__(f"Transaction {transaction} does not exist")


class InvalidTableSchema(TidemillError):
    code = ErrorCode.INVALID_TABLE_SCHEMA

    def __init__(self, table: TableIdent, problem: str) -> None:
        super().__init__(f"Table {table}: {problem}")


class TableIsQuery(TidemillError):
    """The name is that of a stored query, which can be read and dropped but not changed."""

    code = ErrorCode.UNSUPPORTED

    def __init__(self, table: Table) -> None:
        super().__init__(f"{table.ident} is a view without data of its own; it can only be read and dropped")
        self.table = table


class StoredQueryNotFound(TidemillError):
    code = ErrorCode.VIEW_NOT_FOUND

    def __init__(self, ident: TableIdent) -> None:
        super().__init__(f"{ident} is not a view")
        self.ident = ident


class SecretNotFound(TidemillError):
    code = ErrorCode.SECRET_NOT_FOUND

    def __init__(self, ident: TableIdent) -> None:
        super().__init__(f"Secret {ident} does not exist")


class SecretAlreadyExists(TidemillError):
    code = ErrorCode.SECRET_ALREADY_EXISTS

    def __init__(self, ident: TableIdent) -> None:
        super().__init__(f"Secret {ident} already exists; alter it to change its value")


class OtherSecretKey(TidemillError):
    """Something was sealed with another key than this process has."""

    code = ErrorCode.UNAVAILABLE

    def __init__(self, what: str = "a value") -> None:
        super().__init__(
            f"{what} was sealed with another secret key than this process has; start all servers and workers "
            "with the same TIDEMILL_SECRET_KEY, or with the secret.key of the same root"
        )


class ClientNotFound(TidemillError):
    code = ErrorCode.PRINCIPAL_NOT_FOUND

    def __init__(self, client_id: str) -> None:
        super().__init__(f"Client {client_id} does not exist")


class ClientAlreadyExists(TidemillError):
    code = ErrorCode.PRINCIPAL_ALREADY_EXISTS

    def __init__(self, client_id: str, where: str = "") -> None:
        super().__init__(f"Client {client_id} already exists{where}")


class ApiKeyNotFound(TidemillError):
    code = ErrorCode.PRINCIPAL_NOT_FOUND

    def __init__(self, client_id: str, name: str) -> None:
        super().__init__(f"Client {client_id} has no key '{name}'")


class ApiKeyAlreadyExists(TidemillError):
    code = ErrorCode.PRINCIPAL_ALREADY_EXISTS

    def __init__(self, client_id: str, name: str) -> None:
        super().__init__(f"Client {client_id} already has a key '{name}'; choose another name or remove it")


class RoleNotFound(TidemillError):
    code = ErrorCode.PRINCIPAL_NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"Role {name} does not exist")


class RoleAlreadyExists(TidemillError):
    code = ErrorCode.PRINCIPAL_ALREADY_EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"Role {name} already exists")


class FunctionNotFound(TidemillError):
    code = ErrorCode.FUNCTION_NOT_FOUND

    def __init__(self, name: str, which: str = "") -> None:
        """`which` says more than its name or digest, such as the version."""
        super().__init__(f"Function {name}{which} does not exist")
        self.name = name


class ConcurrentModification(TidemillError):
    code = ErrorCode.CONCURRENT_MODIFICATION


class ReceiptExists(TidemillError):
    """A request with this key has already been executed, by this caller or another one."""

    code = ErrorCode.CONCURRENT_MODIFICATION

    def __init__(self, key: str) -> None:
        super().__init__(f"A request with the key {key} has already been executed")
        self.key = key
