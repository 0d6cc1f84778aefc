"""Credentials for a table's files reach as far as the caller's permissions."""

from __future__ import annotations

import pytest

from tests.grants import authorizer_of
from tidemill.catalog.locations import storage_access_of
from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.identifiers import NamespacePath, table_ident
from tidemill.server.access.grants import IMPLIED

ADA = Caller("ada")
HOME, AWAY = NamespacePath(("home",)), NamespacePath(("away",))


def reach_with(granted: Permission, on: NamespacePath) -> StorageAccess:
    authorizer = authorizer_of({"ada": {HOME: frozenset({Permission.READ}), on: frozenset({granted})}})
    return storage_access_of(authorizer, ADA, table_ident(("home", "t")))


@pytest.mark.parametrize("granted", Permission)
def test_only_those_who_may_write_the_table_can_write_its_files(granted: Permission) -> None:
    expected = StorageAccess.WRITE if Permission.WRITE in IMPLIED[granted] else StorageAccess.READ
    assert reach_with(granted, HOME) is expected


def test_a_grant_on_another_namespace_is_not_enough() -> None:
    assert reach_with(Permission.ADMIN, AWAY) is StorageAccess.READ
