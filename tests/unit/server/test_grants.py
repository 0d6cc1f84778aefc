"""A client may do what its grants allow, where they allow it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grants import authorizer_of
from tidemill.catalog.model.access import AccessState, Grant, namespace_of, role_grantee
from tidemill.catalog.model.callers import BACKFILL_CALLER, LOCAL_CALLER, Caller, Permission, Scope
from tidemill.catalog.model.identifiers import FunctionIdent, NamespacePath, TableIdent
from tidemill.catalog.operations.visibility import can
from tidemill.errors import PermissionDenied
from tidemill.server.access.grants import IMPLIED, AccessSnapshot, GrantAuthorizer

ADA = Caller("ada")
ROOT = NamespacePath()
TEAM = NamespacePath(("team",))
RAW = TEAM.child("raw")


def is_allowed(
    granted: Permission, on: NamespacePath, wanted: Permission, resource: NamespacePath | TableIdent
) -> bool:
    try:
        authorizer_of({"ada": {on: frozenset({granted})}}).require(ADA, wanted, resource)
    except PermissionDenied:
        return False
    return True


@pytest.mark.parametrize(
    ("granted", "allows"),
    [
        (Permission.READ, "read"),
        (Permission.WRITE, "read write"),
        (Permission.MANAGE, "read write manage"),
        (Permission.COMPUTE, "read compute"),
        (Permission.FUNCTION, "read function"),
        (Permission.ADMIN, "read write manage compute function admin"),
    ],
)
def test_a_permission_brings_those_that_go_without_saying(granted: Permission, allows: str) -> None:
    allowed = {wanted for wanted in Permission if is_allowed(granted, TEAM, wanted, TEAM)}
    assert allowed == {Permission(name) for name in allows.split()}


@pytest.mark.parametrize("resource", [TEAM, RAW, TableIdent(TEAM, "t"), TableIdent(RAW, "t")], ids=str)
def test_a_grant_covers_all_that_is_in_its_namespace(resource: NamespacePath | TableIdent) -> None:
    assert is_allowed(Permission.READ, TEAM, Permission.READ, resource)


@pytest.mark.parametrize(
    "resource",
    [ROOT, NamespacePath(("teams",)), NamespacePath(("team.raw",)), TableIdent(ROOT, "t")],
    ids=str,
)
def test_a_grant_covers_nothing_beside_or_above_its_namespace(resource: NamespacePath | TableIdent) -> None:
    assert not is_allowed(Permission.ADMIN, TEAM, Permission.READ, resource)


def test_a_table_with_the_name_of_a_granted_namespace_is_not_covered() -> None:
    assert not is_allowed(Permission.ADMIN, TEAM, Permission.READ, TableIdent(ROOT, "team"))


levels = st.lists(st.sampled_from("ab"), max_size=4).map(tuple)


@given(levels, levels)
def test_a_grant_covers_exactly_the_paths_that_begin_with_its_own(
    granted: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    allowed = is_allowed(Permission.READ, NamespacePath(granted), Permission.READ, NamespacePath(asked))
    assert allowed == "/".join((*asked, "")).startswith("/".join((*granted, "")) if granted else "")


def test_grants_on_a_path_add_up() -> None:
    authorizer = authorizer_of(
        {"ada": {ROOT: frozenset({Permission.READ}), RAW: frozenset({Permission.COMPUTE})}}
    )
    authorizer.require(ADA, Permission.READ, TableIdent(RAW, "t"))
    authorizer.require(ADA, Permission.COMPUTE, TableIdent(RAW, "t"))
    with pytest.raises(PermissionDenied):
        authorizer.require(ADA, Permission.COMPUTE, TableIdent(TEAM, "t"))


@pytest.mark.parametrize("caller", [Caller("bob"), LOCAL_CALLER, BACKFILL_CALLER], ids=str)
def test_whoever_has_no_grants_may_do_nothing(caller: Caller) -> None:
    with pytest.raises(PermissionDenied):
        authorizer_of({"ada": {ROOT: frozenset({Permission.ADMIN})}}).require(caller, Permission.READ, TEAM)


def test_a_refusal_names_who_lacks_what_and_where() -> None:
    with pytest.raises(PermissionDenied, match=r"ada lacks the permission 'manage' on team\.raw"):
        authorizer_of({"ada": {TEAM: frozenset({Permission.WRITE})}}).require(ADA, Permission.MANAGE, RAW)


TABLE = TableIdent(RAW, "t")


def test_a_grant_on_a_table_covers_that_table_and_shows_the_way_to_it() -> None:
    authorizer = authorizer_of({"ada": {TABLE: [Permission.WRITE]}})
    authorizer.require(ADA, Permission.READ, TABLE)
    authorizer.require(ADA, Permission.WRITE, TABLE)
    for permission, resource in (
        (Permission.MANAGE, TABLE),
        (Permission.READ, TableIdent(RAW, "u")),
        (Permission.READ, RAW),
        (Permission.READ, RAW.child("t")),
        (Permission.READ, FunctionIdent(RAW, "t")),
    ):
        with pytest.raises(PermissionDenied):
            authorizer.require(ADA, permission, resource)
    assert all(authorizer.sees(ADA, resource) for resource in (ROOT, TEAM, RAW, TABLE))
    hidden = (TableIdent(RAW, "u"), RAW.child("t"), NamespacePath(("other",)), TableIdent(ROOT, "team"))
    assert not any(authorizer.sees(ADA, resource) for resource in hidden)


def test_roles_of_the_credential_and_of_the_catalog_add_up() -> None:
    grants = [
        Grant(role_grantee("readers"), Permission.READ, TEAM),
        Grant(role_grantee("writers"), Permission.WRITE, RAW),
    ]
    state = AccessState(grants=grants, roles={"ada": frozenset({"readers"})})
    authorizer = GrantAuthorizer(lambda: AccessSnapshot(state))
    authorizer.require(ADA, Permission.READ, TEAM)
    with pytest.raises(PermissionDenied):
        authorizer.require(ADA, Permission.WRITE, RAW)
    authorizer.require(Caller("ada", frozenset({"writers"})), Permission.WRITE, RAW)
    with pytest.raises(PermissionDenied):
        authorizer.require(Caller("bob", frozenset({"writers"})), Permission.READ, TEAM)
    # A principal is not the role of its name.
    with pytest.raises(PermissionDenied):
        authorizer.require(Caller("writers"), Permission.READ, RAW)


resources = st.one_of(
    levels.map(NamespacePath),
    levels.map(lambda names: TableIdent(NamespacePath(names), "t")),
)
permissions = st.sampled_from(Permission)


@given(resources, permissions, levels, st.none() | st.frozensets(permissions), resources, permissions)
def test_a_scope_only_takes_away(
    granted: NamespacePath | TableIdent,
    held: Permission,
    scope: tuple[str, ...],
    conveyed: frozenset[Permission] | None,
    asked: NamespacePath | TableIdent,
    wanted: Permission,
) -> None:
    authorizer = authorizer_of({"ada": {granted: [held]}})
    limited = Caller("ada", scope=Scope(conveyed, NamespacePath(scope)))
    is_inside = namespace_of(asked).levels[: len(scope)] == scope
    conveys = conveyed is None or any(wanted in IMPLIED[each] for each in conveyed)
    is_expected = is_inside and conveys and can(authorizer, ADA, wanted, asked)
    assert can(authorizer, limited, wanted, asked) == is_expected
    if authorizer.sees(limited, asked):
        assert authorizer.sees(ADA, asked)
    if can(authorizer, limited, Permission.READ, asked):
        way = (NamespacePath(asked.levels[:depth]) for depth in range(len(asked.levels)))
        assert all(authorizer.sees(limited, above) for above in (*way, asked))
