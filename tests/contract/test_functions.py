"""FunctionRepository, on every store."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.contract.samples import a_function, a_namespace, a_table
from tidemill.catalog.errors import FunctionNotFound, NamespaceNotFound
from tidemill.catalog.model.functions import (
    Function,
    FunctionKey,
    FunctionKind,
    geneva_function,
    source_function,
    sql_function,
)
from tidemill.catalog.model.identifiers import ROOT_NAMESPACE, ROOT_NAMESPACE_ID, NamespacePath
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore


def test_a_function_comes_back_as_it_was_registered(store: JobStore) -> None:
    chunker = replace(
        a_function("split", payload=bytes(range(256)), is_stateful=True, source="def split(text): ..."),
        kind=FunctionKind.CHUNKER,
        output=pa.schema([pa.field("piece", pa.string()), pa.field("at", pa.list_(pa.float32(), 3))]),
    )
    with store.transaction() as tx:
        assert tx.functions.get(tx.functions.add(chunker, "ada")) == chunker


def test_registering_a_known_digest_again_changes_nothing(store: JobStore) -> None:
    function = a_function("length")
    with store.transaction() as tx:
        tx.functions.add(function, "ada")
        tx.functions.add(replace(function, name="other"), "bob")
        assert [item.function for item in tx.functions.list_registered()] == [function]


def test_the_last_word_about_its_time_limit_counts(store: JobStore) -> None:
    function = a_function("length")
    with store.transaction() as tx:
        key = tx.functions.add(function, "ada")
        tx.functions.add(replace(function, timeout_seconds=2.5), "bob")
        assert tx.functions.get(key) == replace(function, timeout_seconds=2.5)
        tx.functions.add(function, "ada")
        assert tx.functions.get(key) == function


def test_getting_an_unknown_digest_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(FunctionNotFound):
        tx.functions.get(FunctionKey(ROOT_NAMESPACE_ID, "sha256:unknown"))


def test_functions_are_listed_by_name_and_then_by_age(store: JobStore) -> None:
    old, new = a_function("length", b"1"), a_function("length", b"2")
    if old.digest < new.digest:
        old, new = new, old
    for function in (a_function("z"), old, new, a_function("B")):
        with store.transaction() as tx:
            tx.functions.add(function, "ada")
        time.sleep(0.002)
    with store.transaction() as tx:
        listed = tx.functions.list_registered()
    assert [(item.function.name, item.version) for item in listed] == [
        ("B", 1),
        ("length", 1),
        ("length", 2),
        ("z", 1),
    ]
    assert [item.function for item in listed[1:3]] == [old, new]


def test_a_dropped_function_is_off_the_list_but_still_there_for_what_uses_it(store: JobStore) -> None:
    first, second = a_function("length", b"1"), a_function("length", b"2")
    with store.transaction() as tx:
        tx.functions.add(first, "ada")
        dropped = tx.functions.add(second, "ada")
        tx.functions.drop(dropped)
        assert [item.function for item in tx.functions.list_registered(name="length")] == [first]
        assert tx.functions.get(dropped) == second


def test_versions_are_not_given_out_twice_and_come_back_with_their_function(store: JobStore) -> None:
    first, second, third = (a_function("length", payload) for payload in (b"1", b"2", b"3"))
    with store.transaction() as tx:
        tx.functions.add(first, "ada")
        tx.functions.drop(tx.functions.add(second, "ada"))
        tx.functions.add(third, "ada")
        tx.functions.add(second, "bob")
        versions = {
            item.function.digest: item.version for item in tx.functions.list_registered(name="length")
        }
    assert versions == {first.digest: 1, second.digest: 2, third.digest: 3}


@pytest.mark.parametrize(
    "function",
    [
        geneva_function("f", FunctionKind.TABLE, b'{"udtf_payload": ""}', pa.schema([("n", pa.int64())])),
        source_function(
            "Model",
            "class Model: ...",
            ["x"],
            pa.float64(),
            name="model",
            python="3.11",
            requirements=["numpy>=2"],
            arguments={"size": 3},
        ),
        sql_function("upper(text)", pa.string()),
    ],
    ids=lambda function: str(function.encoding),
)
def test_every_encoding_comes_back_as_it_was_registered(store: JobStore, function: Function) -> None:
    with store.transaction() as tx:
        assert tx.functions.get(tx.functions.add(function, "ada")) == function


TEAM_A, TEAM_B = a_namespace("team_a"), a_namespace("team_b")


@pytest.fixture
def teams(store: JobStore) -> JobStore:
    with store.transaction() as tx:
        tx.namespaces.add(TEAM_A)
        tx.namespaces.add(TEAM_B)
    return store


def test_the_same_digest_in_two_namespaces_is_two_functions(teams: JobStore) -> None:
    ours = a_function("length")
    theirs = replace(ours, payload=b"another code", timeout_seconds=1.0)
    with teams.transaction() as tx:
        theirs_at = tx.functions.add(theirs, "bob", TEAM_B.path)
        ours_at = tx.functions.add(ours, "ada", TEAM_A.path)
        assert (tx.functions.get(ours_at), tx.functions.get(theirs_at)) == (ours, theirs)
        tx.functions.drop(theirs_at)
        assert [item.namespace for item in tx.functions.find_all(ours.digest)] == [TEAM_A.path]
        assert [item.function for item in tx.functions.list_registered(TEAM_A.path)] == [ours]
        assert tx.functions.list_registered(TEAM_B.path) == []


def test_versions_count_in_each_namespace(teams: JobStore) -> None:
    with teams.transaction() as tx:
        tx.functions.add(a_function("length", b"1"), "ada", TEAM_A.path)
        tx.functions.add(a_function("length", b"2"), "ada", TEAM_A.path)
        tx.functions.add(a_function("length", b"3"), "bob", TEAM_B.path)
        listed = [(item.namespace, item.version) for item in tx.functions.list_registered()]
    assert sorted(listed, key=str) == [(TEAM_A.path, 1), (TEAM_A.path, 2), (TEAM_B.path, 1)]


def test_a_function_in_a_missing_namespace_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.functions.add(a_function("length"), "ada", NamespacePath(("nowhere",)))


def test_a_known_digest_with_another_signature_is_refused(teams: JobStore) -> None:
    function = a_function("length")
    with teams.transaction() as tx:
        tx.functions.add(function, "ada", TEAM_A.path)
        with pytest.raises(InvalidInput, match=r"digest: is that of .* another parameters"):
            tx.functions.add(replace(function, parameters=("other",)), "ada", TEAM_A.path)


def test_functions_of_a_dropped_namespace_stay_for_what_uses_them(teams: JobStore) -> None:
    function = a_function("length")
    with teams.transaction() as tx:
        key = tx.functions.add(function, "ada", TEAM_A.path)
        tx.namespaces.remove(TEAM_A.path)
        assert (tx.functions.namespace_of(key), tx.functions.get(key)) == (None, function)
        # Whoever takes the name does not get the functions.
        tx.namespaces.add(a_namespace("team_a"))
        assert tx.functions.list_registered(TEAM_A.path) == []
        assert [item.namespace for item in tx.functions.list_registered()] == [None]


def test_a_function_with_arguments_is_beside_the_one_it_is_made_from_and_not_listed(teams: JobStore) -> None:
    function, bound = a_function("length"), a_function("length(size=3)")
    with teams.transaction() as tx:
        origin = tx.functions.add(function, "ada", TEAM_A.path)
        for _ in range(2):
            key = tx.functions.add_bound(bound, "bob", origin)
        assert (key.namespace_id, tx.functions.get(key)) == (TEAM_A.namespace_id, bound)
        assert tx.functions.add_bound(function, "bob", origin) == origin
        assert [item.function for item in tx.functions.list_registered()] == [function]


def test_the_name_of_an_earlier_function_is_looked_up_near_the_column(teams: JobStore) -> None:
    table = a_table("team_a", "docs")
    with teams.transaction() as tx:
        tx.tables.add(table)
        for name, namespace in (("root", ROOT_NAMESPACE), ("a", TEAM_A.path), ("b", TEAM_B.path)):
            tx.functions.add(a_function(name), "ada", namespace)

        def found(name: str) -> str | None:
            return tx.functions.find_name(a_function(name).digest, table.table_id, TEAM_A.namespace_id)

        assert (found("root"), found("a"), found("b")) == ("root", "a", None)
