"""Ports of the catalog: database, storage, authorization, remote signing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from tidemill.catalog.model.access import AccessState, ApiKey, Client, Grant, Grantee, Role
from tidemill.catalog.model.callers import Caller, Permission, Receipt, StorageAccess
from tidemill.catalog.model.functions import Function, FunctionKey, RegisteredFunction, Secret
from tidemill.catalog.model.identifiers import (
    ROOT_NAMESPACE,
    Namespace,
    NamespacePath,
    Securable,
    TableIdent,
)
from tidemill.catalog.model.tables import (
    Declared,
    Page,
    StoredQuery,
    Table,
    TableVersion,
)


class NamespaceRepository(Protocol):
    """The root is not a row: it always exists and is never returned."""

    def add(self, namespace: Namespace) -> None:
        """Raises NamespaceAlreadyExists; NamespaceNotFound when the parent is missing."""

    def get(self, path: NamespacePath) -> Namespace:
        """Raises NamespaceNotFound."""

    def find(self, path: NamespacePath) -> Namespace | None: ...

    def list_children(self, path: NamespacePath, page: Page) -> Sequence[Namespace]:
        """Direct children, sorted by name."""

    def set_properties(self, path: NamespacePath, properties: Mapping[str, str]) -> None: ...

    def lock(self, path: NamespacePath) -> Namespace:
        """Locks the row until the transaction ends; raises NamespaceNotFound."""

    def lock_all(self, paths: Iterable[NamespacePath]) -> None:
        """For a transaction that adds names to several namespaces. Call it before locking tables.

        Raises NamespaceNotFound.
        """

    def lock_tree(self, path: NamespacePath) -> None:
        """For a transaction that removes a namespace with its contents. Call it before locking tables.

        Until the transaction ends, no other transaction can add anything in the namespace or below it.
        Raises NamespaceNotFound.
        """

    def remove(self, path: NamespacePath) -> None:
        """Removes an empty namespace; raises NamespaceNotEmpty."""


class TableRepository(Protocol):
    """Lance tables and views. Iceberg tables share their names: a name can be taken by one not found here."""

    def add(self, table: Table) -> None:
        """Raises TableAlreadyExists; NamespaceNotFound when its namespace is missing."""

    def get(self, ident: TableIdent) -> Table:
        """Raises NamespaceNotFound when the namespace is missing, else TableNotFound."""

    def find(self, ident: TableIdent) -> Table | None: ...

    def find_by_id(self, table_id: UUID) -> Table | None: ...

    def list_in(
        self, path: NamespacePath, page: Page, declared: Declared = Declared.INCLUDE
    ) -> Sequence[Table]:
        """Tables directly in the namespace, sorted by name."""

    def list_names(self, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        """Like `list_in`, but only the names; raises NamespaceNotFound."""

    def list_under(self, path: NamespacePath, declared: Declared = Declared.INCLUDE) -> Sequence[Table]:
        """Tables in the namespace and in all namespaces below it, sorted by their levels."""

    def rename(self, table_id: UUID, ident: TableIdent) -> None:
        """Changes only the name; raises TableAlreadyExists, NamespaceNotFound, TableNotFound."""

    def set_properties(self, table_id: UUID, properties: Mapping[str, str]) -> None: ...

    def has_overlapping(self, location: str) -> bool:
        """Whether the location equals, contains or is inside that of another table or view of any format.

        Blocks this check in other transactions until this one ends, so two cannot take the same location.
        """

    def lock(self, table: Table) -> None:
        """Locks the table until the transaction ends; raises TableNotFound if it has been dropped."""

    def lock_all(self, changed: Collection[TableIdent], removed: Collection[TableIdent] = ()) -> None:
        """For a transaction on several tables: locks them in the order that all transactions use.

        Skips tables that do not exist.
        """

    def remove(self, table_id: UUID) -> None:
        """Removes the table's rows (versions, columns, view, coverage) and cancels its active jobs."""

    def list_readers(self, table_ids: Collection[UUID]) -> Sequence[Table]:
        """Views made from one of these tables that are not among them, sorted by name."""

    def remove_iceberg_names(self, path: NamespacePath) -> None:
        """Removes the names of Iceberg tables and views in the namespace and below it; their files stay."""


class VersionRepository(Protocol):
    """One row per (table, branch, version). Inserting the row reserves the version."""

    def add(self, version: TableVersion) -> None:
        """Raises TableVersionAlreadyExists."""

    def find(self, table_id: UUID, branch: str, version: int) -> TableVersion | None: ...

    def find_latest(self, table_id: UUID, branch: str) -> TableVersion | None: ...

    def lock(self, version: TableVersion) -> TableVersion | None:
        """Returns the current row of that version and locks it until the transaction ends."""

    def settle(self, version: TableVersion) -> bool:
        """Clears the deferred writes; False if the row has been replaced or they are cleared already."""

    def list_all(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        """All versions of the branch, ascending."""

    def list_page(
        self, table_id: UUID, branch: str, after: int | None, limit: int | None, *, is_descending: bool
    ) -> Sequence[TableVersion]:
        """At most `limit` versions that follow version `after` in the given order."""

    def mark_deleted(self, version: TableVersion) -> None:
        """Hides the version from everything but `list_deleted` until its row is removed."""

    def list_deleted(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        """Versions marked as deleted whose manifests may still exist."""

    def remove(self, table_id: UUID, branch: str, version: int) -> None: ...

    def remove_branch(self, table_id: UUID, branch: str) -> None:
        """Removes the versions of the branch, and the coverage and row errors of its computed columns."""

    def forget_results(self, table_id: UUID, branch: str, version: int) -> None:
        """Removes coverage and row errors of results computed from, or stored in, this or a later version.

        Views are computed from main.
        """


class FunctionRepository(Protocol):
    """Function versions, each in the namespace where it was registered."""

    def add(
        self, function: Function, registered_by: str, namespace: NamespacePath = ROOT_NAMESPACE
    ) -> FunctionKey:
        """A digest that the namespace has already keeps its code, and gets the timeout.

        Raises NamespaceNotFound, and InvalidInput if the same digest is declared otherwise.
        """

    def add_bound(self, function: Function, registered_by: str, origin: FunctionKey) -> FunctionKey:
        """Keeps a function made from a registered one, beside it and without listing it."""

    def get(self, key: FunctionKey) -> Function:
        """Raises FunctionNotFound."""

    def list_registered(
        self, namespace: NamespacePath | None = None, name: str | None = None
    ) -> Sequence[RegisteredFunction]:
        """Sorted by name, namespace and version, with payloads, without dropped functions.

        Raises NamespaceNotFound.
        """

    def find_all(self, digest: str) -> Sequence[RegisteredFunction]:
        """The functions with this digest in all namespaces, without dropped ones."""

    def find_name(self, digest: str, table_id: UUID, namespace_id: UUID) -> str | None:
        """The name of a function that a column had before.

        It is in the namespace of the one it has now, in that of its table, or in the root.
        """

    def drop(self, key: FunctionKey) -> None:
        """Removes it from listings; columns and views that use it can still read it."""

    def namespace_of(self, key: FunctionKey) -> NamespacePath | None:
        """None if the namespace was dropped."""


class StoredQueryRepository(Protocol):
    """Stored queries. Each belongs to the table row with its name."""

    def add(self, query: StoredQuery) -> None: ...

    def get(self, table: Table) -> StoredQuery:
        """Raises StoredQueryNotFound."""


class SecretRepository(Protocol):
    """Values are stored sealed. `get` and `list_in` do not return them."""

    def add(self, ident: TableIdent, sealed: bytes) -> None:
        """Raises SecretAlreadyExists; NamespaceNotFound when its namespace is missing."""

    def replace(self, ident: TableIdent, sealed: bytes) -> None:
        """Raises SecretNotFound."""

    def get(self, ident: TableIdent) -> Secret:
        """Raises SecretNotFound."""

    def list_in(self, namespace: NamespacePath) -> Sequence[Secret]:
        """Secrets directly in the namespace, sorted by name; raises NamespaceNotFound."""

    def remove(self, ident: TableIdent) -> None:
        """Raises SecretNotFound."""

    def remove_in(self, namespace: NamespacePath) -> None:
        """Removes all secrets directly in the namespace."""


class ClientRepository(Protocol):
    """Clients and their API keys."""

    def add(self, client: Client) -> None:
        """Removes what an earlier client of that name was granted. Raises ClientAlreadyExists."""

    def get(self, client_id: str) -> Client:
        """Raises ClientNotFound."""

    def list_all(self) -> Sequence[Client]:
        """Sorted by id."""

    def remove(self, client_id: str) -> None:
        """Removes the client with its keys, grants and memberships; raises ClientNotFound."""

    def add_key(self, key: ApiKey) -> ApiKey:
        """Returns the key as stored; raises ClientNotFound, ApiKeyAlreadyExists."""

    def list_keys(self, client_id: str) -> Sequence[ApiKey]:
        """Sorted by name; raises ClientNotFound."""

    def remove_key(self, client_id: str, name: str) -> None:
        """Raises ClientNotFound, ApiKeyNotFound."""

    def record_use(self, key_ids: Collection[str]) -> None:
        """Sets when these keys were last used to now."""


class RoleRepository(Protocol):
    """Roles of the catalog, and who has them."""

    def add(self, role: Role) -> None:
        """Raises RoleAlreadyExists."""

    def get(self, name: str) -> Role:
        """Raises RoleNotFound."""

    def list_all(self) -> Sequence[Role]:
        """Sorted by name."""

    def list_of(self, principal: str) -> Sequence[str]:
        """Names of the roles that the principal is a member of, sorted."""

    def remove(self, name: str) -> None:
        """Removes the role with its members and grants; raises RoleNotFound."""

    def add_member(self, name: str, principal: str) -> None:
        """Adding a member again changes nothing. Raises RoleNotFound."""

    def remove_member(self, name: str, principal: str) -> None:
        """Does nothing for those who are not members. Raises RoleNotFound."""


class GrantRepository(Protocol):
    """Grants belong to an object, not to its name: they follow a renamed table and end when it is dropped."""

    def add(self, grants: Sequence[Grant]) -> None:
        """Ignores those that exist; raises NamespaceNotFound, TableNotFound."""

    def remove(self, grants: Sequence[Grant]) -> int:
        """Returns how many of them existed; raises NamespaceNotFound, TableNotFound."""

    def remove_on(self, resource: Securable) -> None:
        """For a function that is dropped; grants on anything else end by themselves."""

    def list_all(self, grantees: Collection[Grantee] | None = None) -> Sequence[Grant]:
        """All grants, or those of these grantees, sorted by object."""

    def revision(self) -> int:
        """A number that every change of clients, keys, roles and grants raises."""

    def state(self) -> AccessState: ...


class Cipher(Protocol):
    """Encrypts values, so that the database alone does not reveal them."""

    def seal(self, value: bytes) -> bytes: ...

    def open(self, sealed: bytes) -> bytes:
        """Raises OtherSecretKey."""


class TransactionProperties(Protocol):
    """Properties that callers set on Lance transactions."""

    def get(self, key: str) -> Mapping[str, str]: ...

    def put(self, key: str, before: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Raises ConcurrentModification if the stored properties are no longer `before`."""


class ReceiptRepository(Protocol):
    """One row per key. Expired receipts are treated as missing."""

    def find(self, key: str) -> Receipt | None: ...

    def add(self, receipt: Receipt, lives: timedelta) -> None:
        """Waits for transactions that are adding the same key; raises ReceiptExists."""

    def remove_expired(self) -> int:
        """Returns how many it removed."""


class CatalogTransaction(Protocol):
    """One atomic unit of catalog change; leaving the block commits, an exception rolls back."""

    @property
    def namespaces(self) -> NamespaceRepository: ...
    @property
    def tables(self) -> TableRepository: ...
    @property
    def versions(self) -> VersionRepository: ...
    @property
    def functions(self) -> FunctionRepository: ...
    @property
    def transaction_properties(self) -> TransactionProperties: ...
    @property
    def secrets(self) -> SecretRepository: ...
    @property
    def clients(self) -> ClientRepository: ...
    @property
    def roles(self) -> RoleRepository: ...
    @property
    def grants(self) -> GrantRepository: ...
    @property
    def stored_queries(self) -> StoredQueryRepository: ...
    @property
    def receipts(self) -> ReceiptRepository: ...

    def now(self) -> datetime:
        """The time of the database, the only clock used for leases and versions."""


class CatalogStore(Protocol):
    def transaction(self) -> AbstractContextManager[CatalogTransaction]: ...

    def reading(self) -> AbstractContextManager[CatalogTransaction]:
        """A read-only transaction. Every statement sees everything committed before it."""


class Authorizer(Protocol):
    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        """Raises PermissionDenied."""

    def sees(self, caller: Caller, resource: Securable) -> bool:
        """Whether listings show it: the caller may read it, or has a grant on something below it."""


class TableFiles(Protocol):
    """Files of tables. Keys are object-store keys: no scheme, no bucket, no leading slash."""

    def location_of(self, table_id: UUID) -> str:
        """The location of a new table, as a URI or absolute path that a client can open."""

    def key_of(self, location: str) -> str:
        """The key of a location."""

    def key_of_file(self, location: str) -> str:
        """The key of a file given as a path or URI without percent-encoding."""

    def size_of(self, key: str) -> int | None:
        """Size of the object in bytes; None if it does not exist."""

    def read(self, key: str) -> bytes:
        """All bytes of the object; raises FileNotFoundError."""

    def write(self, key: str, data: bytes) -> None:
        """Writes the object atomically."""

    def list_names(self, key: str) -> Sequence[str]:
        """Names of the objects directly in this directory; empty if it does not exist."""

    def is_inside(self, location: str) -> bool:
        """Whether the location is in the warehouse or under an allowed location.

        Raises NotADirectoryError if a parent of it is a file.
        """

    def copy_if_absent(self, source_key: str, target_key: str, content: bytes | None = None) -> bool:
        """Copies source to target atomically; returns False if the target exists.

        `content` is the content of source, for stores that would otherwise have to read it. Raises
        FileNotFoundError if source is missing. False may also mean that an earlier attempt of this very call
        created the target.
        """

    def remove(self, key: str) -> None:
        """Removes one object if it exists."""

    def check_reachable(self) -> None:
        """Raises Unavailable if a quick check shows that the warehouse is missing."""

    def make_directory(self, key: str) -> None:
        """Creates a directory with its parents, in storage that has directories. It may exist already."""

    def remove_table(self, location: str) -> None:
        """Removes all files of a table. Rejects locations outside the warehouse."""

    def vend(self, location: str, access: StorageAccess = StorageAccess.WRITE) -> Mapping[str, str]:
        """Storage options with which a client can open the table. They are secret: never log them."""


@dataclass(frozen=True, slots=True)
class SignRequest:
    """A request that a client will send. `body` is present if it names the objects of the request.

    `properties` are those that clients were given together with the table.
    """

    region: str
    method: str
    uri: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signed request with all its headers. Never log any part of it."""

    uri: str
    headers: Mapping[str, Sequence[str]]


class RequestSigner(Protocol):
    def sign(self, location: str, request: SignRequest) -> SignedRequest:
        """Raises InvalidInput, or OutsideTable for a request outside the location."""
