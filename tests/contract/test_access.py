"""ClientRepository, RoleRepository and GrantRepository, on every store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.contract.samples import ROOT, a_namespace, a_table, ident, path
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
from tidemill.catalog.model.access import ApiKey, Client, Grant, Role, principal_grantee, role_grantee
from tidemill.catalog.model.callers import Permission, Scope
from tidemill.catalog.model.identifiers import FunctionIdent, Securable
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.store.engine import SqlStore
from tidemill.store.unit_of_work import SqlTransaction

ADA, TEAM = principal_grantee("ada"), role_grantee("team")
SHOP = path("shop")
KEY = ApiKey("k1", "ada", "default", b"\x00digest")


def on(resource: Securable, permission: Permission = Permission.READ) -> Grant:
    return Grant(ADA, permission, resource, "owner")


def granted(store: SqlStore) -> list[Securable]:
    with store.reading() as tx:
        return [grant.resource for grant in tx.grants.list_all()]


@pytest.fixture
def shop(sql_store: SqlStore) -> SqlStore:
    """A store with a namespace that has one below it, a Lance table and an Iceberg one."""
    with sql_store.transaction() as tx:
        for levels in (("shop",), ("shop", "back")):
            tx.namespaces.add(a_namespace(*levels))
        tx.tables.add(a_table("shop", "lance"))
        tx.iceberg.add(
            Entry(uuid4(), ident("shop", "ice"), EntryKind.TABLE, "/w/ice", "/w/ice/metadata.json", b"{}")
        )
    return sql_store


def test_a_key_is_stored_with_what_it_is_restricted_to(sql_store: SqlStore) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    scope = Scope(frozenset({Permission.READ}), path("a", "b"))
    with sql_store.transaction() as tx:
        tx.clients.add(Client("ada", "loads", "owner"))
        stored = tx.clients.add_key(replace(KEY, scope=scope, expires_at=until))
        assert replace(stored, created_at=None) == replace(KEY, scope=scope, expires_at=until)
        assert tx.clients.list_keys("ada") == [stored]
        assert stored.last_used_at is None
        tx.clients.record_use(["k1"])
        assert tx.clients.list_keys("ada")[0].last_used_at is not None
        assert tx.clients.get("ada").description == "loads"


def test_clients_keys_and_roles_have_a_name_once(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        tx.clients.add(Client("ada"))
        tx.clients.add_key(KEY)
        tx.roles.add(Role("team"))
        with pytest.raises(ClientAlreadyExists):
            tx.clients.add(Client("ada"))
        with pytest.raises(ApiKeyAlreadyExists):
            tx.clients.add_key(replace(KEY, key_id="k2"))
        with pytest.raises(RoleAlreadyExists):
            tx.roles.add(Role("team"))


def test_what_is_missing_is_refused(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        with pytest.raises(ClientNotFound):
            tx.clients.add_key(KEY)
        for call in (tx.clients.get, tx.clients.remove, tx.clients.list_keys):
            with pytest.raises(ClientNotFound):
                call("ada")
        for find in (tx.roles.get, tx.roles.remove):
            with pytest.raises(RoleNotFound):
                find("team")
        with pytest.raises(RoleNotFound):
            tx.roles.add_member("team", "ada")
        with pytest.raises(NamespaceNotFound):
            tx.grants.add([on(SHOP)])
        with pytest.raises(TableNotFound):
            tx.grants.add([on(ident("t"))])
        tx.clients.add(Client("ada"))
        with pytest.raises(ApiKeyNotFound):
            tx.clients.remove_key("ada", "default")


def test_a_removed_client_leaves_nothing_for_the_next_of_its_name(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        tx.roles.add(Role("team"))
        for _ in range(2):
            tx.clients.add(Client("ada"))
            assert tx.clients.list_keys("ada") == []
            assert tx.roles.list_of("ada") == []
            assert tx.grants.list_all([ADA]) == []
            tx.clients.add_key(KEY)
            tx.roles.add_member("team", "ada")
            tx.grants.add([on(ROOT)])
            assert tx.roles.list_of("ada") == ["team"]
            tx.clients.remove("ada")


def test_grants_of_a_name_from_the_settings_are_not_inherited_by_a_new_client(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        tx.grants.add([on(ROOT)])
        tx.clients.add(Client("ada"))
        assert tx.grants.list_all() == []


def test_a_removed_role_takes_its_grants_along(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        tx.roles.add(Role("team"))
        tx.roles.add_member("team", "ada")
        tx.roles.add_member("team", "ada")
        assert tx.roles.get("team").members == ("ada",)
        tx.grants.add([Grant(TEAM, Permission.READ, ROOT), on(ROOT)])
        tx.roles.remove("team")
        assert [grant.grantee for grant in tx.grants.list_all()] == [ADA]
        assert tx.roles.list_of("ada") == []


def test_everything_can_be_granted_on_once(shop: SqlStore) -> None:
    resources: list[Securable] = [
        ROOT,
        SHOP,
        path("shop", "back"),
        FunctionIdent(SHOP, "ice"),
        ident("shop", "ice"),
        ident("shop", "lance"),
    ]
    with shop.transaction() as tx:
        for _ in range(2):
            tx.grants.add([on(resource) for resource in resources])
    assert sorted(map(repr, granted(shop))) == sorted(map(repr, resources))
    with shop.transaction() as tx:
        assert tx.grants.remove([on(ident("shop", "ice")), on(ident("shop", "ice"), Permission.WRITE)]) == 1
        tx.grants.remove_on(FunctionIdent(SHOP, "ice"))
    assert {ident("shop", "ice"), FunctionIdent(SHOP, "ice")}.isdisjoint(granted(shop))
    assert len(granted(shop)) == 4


def rename_lance(tx: SqlTransaction) -> None:
    tx.tables.rename(tx.tables.get(ident("shop", "lance")).table_id, ident("shop", "back", "new"))


def rename_iceberg(tx: SqlTransaction) -> None:
    entry = tx.iceberg.find(ident("shop", "ice"), EntryKind.TABLE)
    assert entry is not None
    assert tx.iceberg.rename(entry, ident("shop", "back", "new"))


def drop_lance(tx: SqlTransaction) -> None:
    tx.tables.remove(tx.tables.get(ident("shop", "lance")).table_id)


def drop_iceberg(tx: SqlTransaction) -> None:
    entry = tx.iceberg.lock(ident("shop", "ice"), EntryKind.TABLE)
    assert entry is not None
    tx.iceberg.remove(entry.entry_id)


def drop_all_iceberg(tx: SqlTransaction) -> None:
    tx.tables.remove_iceberg_names(SHOP)


def drop_namespace(tx: SqlTransaction) -> None:
    tx.namespaces.remove(path("shop", "back"))


@pytest.mark.parametrize(
    ("name", "change", "left"),
    [
        ("lance", rename_lance, [ident("shop", "back", "new")]),
        ("ice", rename_iceberg, [ident("shop", "back", "new")]),
        ("lance", drop_lance, []),
        ("ice", drop_iceberg, []),
        ("ice", drop_all_iceberg, []),
        ("", drop_namespace, []),
    ],
)
def test_grants_follow_what_they_are_on_and_every_process_can_tell(
    shop: SqlStore, name: str, change: Callable[[SqlTransaction], None], left: list[Securable]
) -> None:
    with shop.transaction() as tx:
        tx.grants.add([on(ident("shop", name) if name else path("shop", "back"))])
        before = tx.grants.revision()
    with shop.transaction() as tx:
        change(tx)
    assert granted(shop) == left
    with shop.reading() as tx:
        assert tx.grants.revision() > before
        assert [grant.resource for grant in tx.grants.state().grants] == left


def test_tables_without_grants_change_no_revision(shop: SqlStore) -> None:
    """Otherwise busy catalogs would read all grants again every second."""
    with shop.transaction() as tx:
        before = tx.grants.revision()
        rename_lance(tx)
        drop_iceberg(tx)
        assert tx.grants.revision() == before


def test_a_table_that_takes_the_name_of_a_dropped_one_has_no_grants(shop: SqlStore) -> None:
    with shop.transaction() as tx:
        tx.grants.add([on(ident("shop", "lance"))])
        drop_lance(tx)
        tx.tables.add(a_table("shop", "lance"))
        assert tx.grants.list_all() == []
