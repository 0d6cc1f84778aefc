"""What clients of an Iceberg catalog do at the same time; faults befall the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.interleavings.iceberg_model import (
    MAIN_BRANCH,
    SCHEMA_ID,
    SQL,
    Change,
    Commit,
    CommitAll,
    Create,
    Drop,
    Kind,
    Load,
    Named,
    Overwrite,
    Rename,
    Request,
)
from tests.interleavings.iceberg_world import (
    FIRST_SCHEMA,
    Fault,
    Scenario,
    World,
)
from tests.interleavings.scheduler import Actor


def sets(name: str, key: str, value: str = "x", *requires: tuple[str, str | None]) -> Change:
    return Change(name, ((key, value),), requires)


def commit(name: str, key: str, value: str = "x", *requires: tuple[str, str | None]) -> Request:
    return Request(Commit(sets(name, key, value, *requires)))


def commit_all(*changes: Change) -> Request:
    return Request(CommitAll(changes))


def query(name: str, sql: str) -> Request:
    return Request(Commit(Change(name, ((SQL, sql),), kind=Kind.VIEW)))


def new_table(name: str, **properties: str) -> Request:
    return Request(Create(name, Named(Kind.TABLE, frozenset((*FIRST_SCHEMA, *properties.items())))))


def new_view(name: str, sql: str) -> Request:
    return Request(Create(name, Named(Kind.VIEW, frozenset({(SQL, sql)}))))


def keyed(request: Request, key: str = "k") -> Request:
    return replace(request, key=key)


def two_commits(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, commit("t", "b"))


def two_commits_of_which_one_fits(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return (
        world.client("a", 0, commit("t", SCHEMA_ID, "1", (SCHEMA_ID, "0")), fault=fault),
        world.client("b", 1, commit("t", SCHEMA_ID, "1", (SCHEMA_ID, "0"))),
    )


def two_first_snapshots(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return (
        world.client("a", 0, commit("t", MAIN_BRANCH, "1", (MAIN_BRANCH, None)), fault=fault),
        world.client("b", 1, commit("t", MAIN_BRANCH, "2", (MAIN_BRANCH, None))),
    )


def a_commit_and_a_drop(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, Request(Drop("t")))


def a_drop_and_a_commit(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return world.client("a", 0, Request(Drop("t")), fault=fault), world.client("b", 1, commit("t", "b"))


def a_commit_and_a_rename(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    rename = Request(Rename("t", "new"))
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, rename)


def a_rename_and_a_commit(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    rename = Request(Rename("t", "new"))
    return world.client("a", 0, rename, fault=fault), world.client("b", 1, commit("t", "b"))


def a_rename_and_a_create(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    rename = Request(Rename("t", "new"))
    return world.client("a", 0, rename, fault=fault), world.client("b", 1, new_table("new", b="x"))


def a_commit_and_an_overwrite(world: World, fault: Fault) -> Sequence[Actor]:
    other = world.has_dropped("other", old="x")
    world.has_table("t")
    overwrite = Request(Overwrite("t", other))
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, overwrite)


def an_overwrite_and_a_commit(world: World, fault: Fault) -> Sequence[Actor]:
    other = world.has_dropped("other", old="x")
    world.has_table("t")
    overwrite = Request(Overwrite("t", other))
    return world.client("a", 0, overwrite, fault=fault), world.client("b", 1, commit("t", "b"))


def a_commit_and_an_overwrite_with_an_old_state(world: World, fault: Fault) -> Sequence[Actor]:
    """The commit takes away the metadata file that the other makes current again."""
    first = world.keeps_one_old_state("t")
    world.has_committed("t", second="x")
    overwrite = Request(Overwrite("t", first))
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, overwrite)


def a_commit_and_a_purge(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t", {"second": "x"})
    purge = Request(Drop("t", removes_files=True))
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, purge)


def a_purge_and_a_commit(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t", {"second": "x"})
    purge = Request(Drop("t", removes_files=True))
    return world.client("a", 0, purge, fault=fault), world.client("b", 1, commit("t", "b"))


def a_purge_and_a_load(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    purge = Request(Drop("t", removes_files=True))
    return world.client("a", 0, purge, fault=fault), world.client("b", 1, Request(Load("t")))


def a_commit_and_loads(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    load = Request(Load("t"))
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 1, load, load)


def commits_that_remove_old_states_and_a_load(world: World, fault: Fault) -> Sequence[Actor]:
    world.keeps_one_old_state("t")
    commits = commit("t", "a"), commit("t", "b")
    return world.client("a", 0, *commits, fault=fault), world.client("b", 1, Request(Load("t")))


def two_creates(world: World, fault: Fault) -> Sequence[Actor]:
    return (
        world.client("a", 0, new_table("t", a="x"), fault=fault),
        world.client("b", 1, new_table("t", b="x")),
    )


def a_create_and_a_lance_table(world: World, fault: Fault) -> Sequence[Actor]:
    declare = Request(Create("t", Named(Kind.LANCE, frozenset())))
    return world.client("a", 0, new_table("t", a="x"), fault=fault), world.client("b", 1, declare)


def a_table_and_a_view(world: World, fault: Fault) -> Sequence[Actor]:
    return (
        world.client("a", 0, new_table("t", a="x"), fault=fault),
        world.client("b", 1, new_view("t", "SELECT 2")),
    )


def a_transaction_and_single_commits(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    world.has_table("u")
    both = commit_all(sets("t", "a"), sets("u", "a"))
    return (
        world.client("a", 0, both, fault=fault),
        world.client("b", 1, commit("t", "b"), commit("u", "b")),
    )


def two_transactions_in_opposite_order(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    world.has_table("u")
    return (
        world.client("a", 0, commit_all(sets("t", "last", "a"), sets("u", "last", "a")), fault=fault),
        world.client("b", 1, commit_all(sets("u", "last", "b"), sets("t", "last", "b"))),
    )


def a_transaction_that_requires_what_another_changes(world: World, fault: Fault) -> Sequence[Actor]:
    """It changes u only as long as t has its first schema."""
    world.has_table("t")
    world.has_table("u")
    required = Change("t", requires=((SCHEMA_ID, "0"),))
    return (
        world.client("a", 0, commit_all(required, sets("u", "a")), fault=fault),
        world.client("b", 1, commit("t", SCHEMA_ID, "1", (SCHEMA_ID, "0")), Request(Load("u"))),
    )


def transactions_that_require_what_the_other_changes(world: World, fault: Fault) -> Sequence[Actor]:
    """Write skew: each would be fine without the other."""
    world.has_table("t")
    world.has_table("u")
    t, u = (Change(name, requires=((SCHEMA_ID, "0"),)) for name in ("t", "u"))
    return (
        world.client("a", 0, commit_all(t, sets("u", SCHEMA_ID, "1")), fault=fault),
        world.client("b", 1, commit_all(u, sets("t", SCHEMA_ID, "1"))),
    )


def a_transaction_and_a_drop(world: World, fault: Fault) -> Sequence[Actor]:
    # The last state of what is dropped is in storage, and nobody was told its name.
    world.leaves_files = True
    world.has_table("t")
    world.has_table("u")
    both = commit_all(sets("t", "a"), sets("u", "a"))
    return world.client("a", 0, both, fault=fault), world.client("b", 1, Request(Drop("u")))


def two_replaced_views(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_view("v")
    return (
        world.client("a", 0, query("v", "SELECT 2"), fault=fault),
        world.client("b", 1, query("v", "SELECT 3")),
    )


def a_replaced_view_and_a_drop(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_view("v")
    drop = Request(Drop("v", Kind.VIEW))
    return world.client("a", 0, query("v", "SELECT 2"), fault=fault), world.client("b", 1, drop)


def a_new_view_and_a_replacement(world: World, fault: Fault) -> Sequence[Actor]:
    return (
        world.client("a", 0, new_view("v", "SELECT 1"), fault=fault),
        world.client("b", 1, query("v", "SELECT 2")),
    )


def one_commit_sent_twice(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    request = keyed(commit("t", "last", "k"))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, request),
    )


def one_commit_sent_again_beside_another(world: World, fault: Fault) -> Sequence[Actor]:
    """Applied twice, it would undo what the other did in between, who can tell that it was there before."""
    world.has_table("t")
    request = keyed(Request(Commit(Change("t", (("a", "x"), ("last", "a"))))))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, commit("t", "last", "b")),
    )


def one_refusal_sent_again_beside_what_would_allow_it(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    request = keyed(commit("t", "a", "x", (SCHEMA_ID, "1")))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, commit("t", SCHEMA_ID, "1")),
    )


def one_create_sent_twice(world: World, fault: Fault) -> Sequence[Actor]:
    request = keyed(new_table("t"))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, request),
    )


def one_drop_sent_again_beside_a_create(world: World, fault: Fault) -> Sequence[Actor]:
    """Carried out twice, it would drop the new table."""
    world.has_table("t")
    return (
        world.client("a", 0, keyed(Request(Drop("t"))), fault=fault, again_at=2),
        world.client("b", 1, new_table("t", b="x")),
    )


def one_transaction_sent_twice(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    world.has_table("u")
    request = keyed(commit_all(sets("t", "last", "k"), sets("u", "last", "k")))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, request),
    )


def one_view_sent_twice(world: World, fault: Fault) -> Sequence[Actor]:
    request = keyed(new_view("v", "SELECT 1"))
    return (
        world.client("a", 0, request, fault=fault, again_at=2),
        world.client("b", 1, request),
    )


def one_key_for_two_commits(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return (
        world.client("a", 0, keyed(commit("t", "a")), fault=fault, again_at=2),
        world.client("b", 1, keyed(commit("t", "b"))),
    )


SCENARIOS: Final[Sequence[Scenario]] = (
    two_commits,
    two_commits_of_which_one_fits,
    two_first_snapshots,
    a_commit_and_a_drop,
    a_drop_and_a_commit,
    a_commit_and_a_rename,
    a_rename_and_a_commit,
    a_rename_and_a_create,
    a_commit_and_an_overwrite,
    an_overwrite_and_a_commit,
    a_commit_and_an_overwrite_with_an_old_state,
    a_commit_and_a_purge,
    a_purge_and_a_commit,
    a_purge_and_a_load,
    a_commit_and_loads,
    commits_that_remove_old_states_and_a_load,
    two_creates,
    a_create_and_a_lance_table,
    a_table_and_a_view,
    a_transaction_and_single_commits,
    two_transactions_in_opposite_order,
    a_transaction_that_requires_what_another_changes,
    transactions_that_require_what_the_other_changes,
    a_transaction_and_a_drop,
    two_replaced_views,
    a_replaced_view_and_a_drop,
    a_new_view_and_a_replacement,
    one_commit_sent_twice,
    one_commit_sent_again_beside_another,
    one_refusal_sent_again_beside_what_would_allow_it,
    one_create_sent_twice,
    one_drop_sent_again_beside_a_create,
    one_transaction_sent_twice,
    one_view_sent_twice,
    one_key_for_two_commits,
)


def three_commits(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return (
        world.client("a", 0, commit("t", "last", "a"), fault=fault),
        world.client("b", 1, commit("t", "last", "b")),
        world.client("c", 2, commit("t", "last", "c")),
    )


def a_commit_a_drop_and_a_create(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    return (
        world.client("a", 0, commit("t", "a"), fault=fault),
        world.client("b", 1, Request(Drop("t"))),
        world.client("c", 2, new_table("t", c="x")),
    )


def a_transaction_and_a_commit_to_each_table(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    world.has_table("u")
    return (
        world.client("a", 0, commit_all(sets("t", "a"), sets("u", "a")), fault=fault),
        world.client("b", 1, commit("t", "b")),
        world.client("c", 2, commit("u", "c")),
    )


def one_commit_sent_twice_beside_another(world: World, fault: Fault) -> Sequence[Actor]:
    world.has_table("t")
    request = keyed(commit("t", "last", "k"))
    return (
        world.client("a", 0, request, fault=fault),
        world.client("b", 1, request),
        world.client("c", 2, commit("t", "last", "c")),
    )


THREE: Final[Sequence[Scenario]] = (
    three_commits,
    a_commit_a_drop_and_a_create,
    a_transaction_and_a_commit_to_each_table,
    one_commit_sent_twice_beside_another,
)


def two_commits_to_one_server(world: World, fault: Fault) -> Sequence[Actor]:
    """They take turns at a lock of the process."""
    world.has_table("t")
    return world.client("a", 0, commit("t", "a"), fault=fault), world.client("b", 0, commit("t", "b"))
