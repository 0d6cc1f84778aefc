"""Clients, API keys, roles and grants as rows; every change of them raises the revision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import (
    ApiKeyAlreadyExists,
    ApiKeyNotFound,
    ClientAlreadyExists,
    ClientNotFound,
    NamespaceNotFound,
    RoleAlreadyExists,
    RoleNotFound,
    TableNotFound,
)
from tidemill.catalog.model.access import (
    AccessState,
    ApiKey,
    Client,
    Grant,
    Grantee,
    GranteeKind,
    Role,
    kind_of,
    principal_grantee,
    role_grantee,
)
from tidemill.catalog.model.callers import Permission, Scope
from tidemill.catalog.model.identifiers import FunctionIdent, NamespacePath, Securable, TableIdent
from tidemill.store.access_revision import raise_revision, read_revision
from tidemill.store.column_types import DatabaseTime
from tidemill.store.driver_errors import is_foreign_key_violation, savepoint
from tidemill.store.namespaces import get_namespace_id
from tidemill.store.schema import (
    ROOT_ID,
    api_keys,
    clients,
    grants,
    namespaces,
    role_members,
    roles,
    tables,
)


class SqlClientRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, client: Client) -> None:
        row = {
            "client_id": client.client_id,
            "description": client.description,
            "created_by": client.created_by,
            "created_at": DatabaseTime(),
        }
        try:
            with savepoint(self._connection):
                self._connection.execute(insert(clients).values(row))
        except IntegrityError as error:
            raise ClientAlreadyExists(client.client_id) from error
        _forget(self._connection, principal_grantee(client.client_id))
        raise_revision(self._connection)

    def get(self, client_id: str) -> Client:
        row = self._connection.execute(select(clients).where(clients.c.client_id == client_id)).first()
        if row is None:
            raise ClientNotFound(client_id)
        return _client(row)

    def list_all(self) -> Sequence[Client]:
        return [
            _client(row) for row in self._connection.execute(select(clients).order_by(clients.c.client_id))
        ]

    def remove(self, client_id: str) -> None:
        # The keys go with it.
        removed = self._connection.execute(delete(clients).where(clients.c.client_id == client_id))
        if not removed.rowcount:
            raise ClientNotFound(client_id)
        _forget(self._connection, principal_grantee(client_id))
        raise_revision(self._connection)

    def add_key(self, key: ApiKey) -> ApiKey:
        row = {
            "key_id": key.key_id,
            "client_id": key.client_id,
            "name": key.name,
            "digest": key.digest,
            "scope": None if key.scope is None else _scope_json(key.scope),
            "created_at": DatabaseTime(),
            "expires_at": key.expires_at,
        }
        try:
            with savepoint(self._connection):
                self._connection.execute(insert(api_keys).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise ClientNotFound(key.client_id) from error
            raise ApiKeyAlreadyExists(key.client_id, key.name) from error
        raise_revision(self._connection)
        stored = select(api_keys).where(api_keys.c.key_id == key.key_id)
        return _key(self._connection.execute(stored).one())

    def list_keys(self, client_id: str) -> Sequence[ApiKey]:
        self.get(client_id)
        query = select(api_keys).where(api_keys.c.client_id == client_id).order_by(api_keys.c.name)
        return [_key(row) for row in self._connection.execute(query)]

    def remove_key(self, client_id: str, name: str) -> None:
        self.get(client_id)
        is_key = and_(api_keys.c.client_id == client_id, api_keys.c.name == name)
        if not self._connection.execute(delete(api_keys).where(is_key)).rowcount:
            raise ApiKeyNotFound(client_id, name)
        raise_revision(self._connection)

    def record_use(self, key_ids: Collection[str]) -> None:
        # Not a change of what anybody may do, so the revision stays.
        used = update(api_keys).where(api_keys.c.key_id.in_(key_ids))
        self._connection.execute(used.values(last_used_at=DatabaseTime()))


class SqlRoleRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, role: Role) -> None:
        row = {
            "name": role.name,
            "description": role.description,
            "created_by": role.created_by,
            "created_at": DatabaseTime(),
        }
        try:
            with savepoint(self._connection):
                self._connection.execute(insert(roles).values(row))
        except IntegrityError as error:
            raise RoleAlreadyExists(role.name) from error
        raise_revision(self._connection)

    def get(self, name: str) -> Role:
        found = self._list(select(roles).where(roles.c.name == name))
        if not found:
            raise RoleNotFound(name)
        return found[0]

    def list_all(self) -> Sequence[Role]:
        return self._list(select(roles).order_by(roles.c.name))

    def list_of(self, principal: str) -> Sequence[str]:
        query = select(role_members.c.role).where(role_members.c.principal == principal)
        return self._connection.scalars(query.order_by(role_members.c.role)).all()

    def remove(self, name: str) -> None:
        if not self._connection.execute(delete(roles).where(roles.c.name == name)).rowcount:
            raise RoleNotFound(name)
        _forget(self._connection, role_grantee(name))
        raise_revision(self._connection)

    def add_member(self, name: str, principal: str) -> None:
        try:
            with savepoint(self._connection):
                self._connection.execute(insert(role_members).values(role=name, principal=principal))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise RoleNotFound(name) from error
            return
        raise_revision(self._connection)

    def remove_member(self, name: str, principal: str) -> None:
        self.get(name)
        is_member = and_(role_members.c.role == name, role_members.c.principal == principal)
        if self._connection.execute(delete(role_members).where(is_member)).rowcount:
            raise_revision(self._connection)

    def _list(self, query: Select[Any]) -> list[Role]:
        rows = self._connection.execute(query).all()
        members: dict[str, list[str]] = {row.name: [] for row in rows}
        of_these = select(role_members).where(role_members.c.role.in_(members))
        for member in self._connection.execute(of_these.order_by(role_members.c.principal)):
            members[member.role].append(member.principal)
        return [
            Role(row.name, row.description, row.created_by, row.created_at, tuple(members[row.name]))
            for row in rows
        ]


class SqlGrantRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, new: Sequence[Grant]) -> None:
        wanted = [(grant, self._object_of(grant.resource)) for grant in new]
        # From here on no other transaction changes grants, so two cannot add the same one.
        raise_revision(self._connection)
        for grant, on in wanted:
            if not self._connection.scalars(select(grants.c.grant_id).where(_is(grant, on))).first():
                row = {
                    "grant_id": uuid4(),
                    "grantee_kind": grant.grantee.kind.value,
                    "grantee": grant.grantee.name,
                    "permission": grant.permission.value,
                    **on,
                    "granted_by": grant.granted_by,
                    "granted_at": DatabaseTime(),
                }
                self._connection.execute(insert(grants).values(row))

    def remove(self, revoked: Sequence[Grant]) -> int:
        matches = [_is(grant, self._object_of(grant.resource)) for grant in revoked]
        raise_revision(self._connection)
        return self._connection.execute(delete(grants).where(or_(*matches))).rowcount

    def remove_on(self, resource: Securable) -> None:
        on = self._object_of(resource)
        if self._connection.execute(delete(grants).where(_is_on(on))).rowcount:
            raise_revision(self._connection)

    def list_all(self, grantees: Collection[Grantee] | None = None) -> Sequence[Grant]:
        query = select(grants, tables.c.namespace_id.label("of_table"), tables.c.name.label("table_name"))
        query = query.outerjoin(tables, tables.c.table_id == grants.c.table_id)
        if grantees is not None:
            of_these = [
                and_(grants.c.grantee_kind == grantee.kind.value, grants.c.grantee == grantee.name)
                for grantee in grantees
            ]
            query = query.where(or_(*of_these))
        rows = self._connection.execute(query).all()
        paths = self._paths()
        found = [_grant(row, paths) for row in rows]
        return sorted(filter(None, found), key=_order)

    def revision(self) -> int:
        return read_revision(self._connection)

    def state(self) -> AccessState:
        # The revision goes first: whatever is committed after it leads to another look.
        revision = self.revision()
        keys = [_key(row) for row in self._connection.execute(select(api_keys))]
        held: dict[str, set[str]] = {}
        for row in self._connection.execute(select(role_members)):
            held.setdefault(row.principal, set()).add(row.role)
        members = {principal: frozenset(names) for principal, names in held.items()}
        return AccessState(revision, keys, members, self.list_all())

    def _paths(self) -> dict[UUID, NamespacePath]:
        """The paths of all namespaces in which something is granted."""
        granted_on_tables = select(tables.c.namespace_id).join(grants, grants.c.table_id == tables.c.table_id)
        granted = select(grants.c.namespace_id).where(grants.c.namespace_id.is_not(None))
        start = granted_on_tables.union(granted).subquery()
        above = (
            select(namespaces.c.namespace_id, namespaces.c.parent_id, namespaces.c.name)
            .where(namespaces.c.namespace_id.in_(select(start.c[0])))
            .cte("above", recursive=True)
        )
        parents = select(namespaces.c.namespace_id, namespaces.c.parent_id, namespaces.c.name)
        # UNION ends the recursion at ancestors that others share.
        above = above.union(parents.join(above, namespaces.c.namespace_id == above.c.parent_id))
        rows = {row.namespace_id: row for row in self._connection.execute(select(above))}
        paths = {ROOT_ID: NamespacePath()}
        for namespace_id in rows:
            _add_path(namespace_id, rows, paths)
        return paths

    def _object_of(self, resource: Securable) -> dict[str, Any]:
        """The columns that say what is granted on. Locks the object, so that it is not removed meanwhile."""
        match resource:
            case TableIdent():
                query = select(tables.c.table_id).where(
                    tables.c.namespace_id == get_namespace_id(self._connection, resource.namespace),
                    tables.c.name == resource.name,
                )
                table_id = self._connection.scalar(query.with_for_update(read=True, key_share=True))
                if table_id is None:
                    raise TableNotFound(resource)
                return {"namespace_id": None, "table_id": table_id, "function": None}
            case FunctionIdent():
                namespace_id = self._lock_namespace(resource.namespace)
                return {"namespace_id": namespace_id, "table_id": None, "function": resource.name}
            case NamespacePath():
                namespace_id = self._lock_namespace(resource)
                return {"namespace_id": namespace_id, "table_id": None, "function": None}

    def _lock_namespace(self, path: NamespacePath) -> UUID:
        namespace_id = get_namespace_id(self._connection, path)
        query = select(namespaces.c.namespace_id).where(namespaces.c.namespace_id == namespace_id)
        if self._connection.scalar(query.with_for_update(read=True, key_share=True)) is None:
            raise NamespaceNotFound(path)
        return namespace_id


def _forget(connection: Connection, grantee: Grantee) -> None:
    """Removes all grants, and for a principal its memberships."""
    is_grantee = and_(grants.c.grantee_kind == grantee.kind.value, grants.c.grantee == grantee.name)
    connection.execute(delete(grants).where(is_grantee))
    if grantee.kind is not GranteeKind.ROLE:
        connection.execute(delete(role_members).where(role_members.c.principal == grantee.name))


def _is(grant: Grant, on: Mapping[str, Any]) -> ColumnElement[bool]:
    return and_(
        grants.c.grantee_kind == grant.grantee.kind.value,
        grants.c.grantee == grant.grantee.name,
        grants.c.permission == grant.permission.value,
        _is_on(on),
    )


def _is_on(on: Mapping[str, Any]) -> ColumnElement[bool]:
    return and_(
        *(
            grants.c[name].is_(None) if value is None else grants.c[name] == value
            for name, value in on.items()
        )
    )


def _add_path(
    namespace_id: UUID, rows: Mapping[UUID, Row[Any]], paths: dict[UUID, NamespacePath]
) -> NamespacePath | None:
    """None if an ancestor was removed while the rows were read."""
    if namespace_id not in paths:
        row = rows.get(namespace_id)
        parent = None if row is None else _add_path(row.parent_id, rows, paths)
        if row is None or parent is None:
            return None
        paths[namespace_id] = parent.child(row.name)
    return paths[namespace_id]


def _grant(row: Row[Any], paths: Mapping[UUID, NamespacePath]) -> Grant | None:
    path = paths.get(row.of_table or row.namespace_id)
    if path is None:
        return None
    resource: Securable = path
    if row.table_name is not None:
        resource = TableIdent(path, row.table_name)
    elif row.function is not None:
        resource = FunctionIdent(path, row.function)
    grantee = Grantee(GranteeKind(row.grantee_kind), row.grantee)
    return Grant(grantee, Permission(row.permission), resource, row.granted_by, row.granted_at)


def _order(grant: Grant) -> tuple[Any, ...]:
    return (grant.resource.levels, kind_of(grant.resource), grant.grantee, grant.permission)


def _client(row: Row[Any]) -> Client:
    return Client(row.client_id, row.description, row.created_by, row.created_at)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.key_id,
        row.client_id,
        row.name,
        bytes(row.digest),
        None if row.scope is None else _scope(row.scope),
        row.created_at,
        row.expires_at,
        row.last_used_at,
    )


def _scope_json(scope: Scope) -> dict[str, Any]:
    permissions = None if scope.permissions is None else sorted(scope.permissions)
    return {"permissions": permissions, "namespace": list(scope.namespace.levels)}


def _scope(raw: Mapping[str, Any]) -> Scope:
    permissions: Iterable[str] | None = raw["permissions"]
    allowed = None if permissions is None else frozenset(map(Permission, permissions))
    return Scope(allowed, NamespacePath(tuple(raw["namespace"])))
