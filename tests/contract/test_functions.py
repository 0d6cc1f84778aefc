"""FunctionRepository, on every store."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.contract.samples import a_function
from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    geneva_function,
    source_function,
    sql_function,
)
from tidemill.jobs.ports import JobStore


def test_a_function_comes_back_as_it_was_registered(store: JobStore) -> None:
    chunker = replace(
        a_function("split", payload=bytes(range(256)), is_stateful=True, source="def split(text): ..."),
        kind=FunctionKind.CHUNKER,
        output=pa.schema([pa.field("piece", pa.string()), pa.field("at", pa.list_(pa.float32(), 3))]),
    )
    with store.transaction() as tx:
        tx.functions.add(chunker, "ada")
        assert tx.functions.get(chunker.digest) == chunker


def test_registering_a_known_digest_again_changes_nothing(store: JobStore) -> None:
    function = a_function("length")
    with store.transaction() as tx:
        tx.functions.add(function, "ada")
        tx.functions.add(replace(function, name="other"), "bob")
        assert [item.function for item in tx.functions.list_registered()] == [function]


def test_the_last_word_about_its_time_limit_counts(store: JobStore) -> None:
    function = a_function("length")
    with store.transaction() as tx:
        tx.functions.add(function, "ada")
        tx.functions.add(replace(function, timeout_seconds=2.5), "bob")
        assert tx.functions.get(function.digest) == replace(function, timeout_seconds=2.5)
        tx.functions.add(function, "ada")
        assert tx.functions.get(function.digest) == function


def test_getting_an_unknown_digest_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(FunctionNotFound):
        tx.functions.get("sha256:unknown")


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
        tx.functions.add(second, "ada")
        tx.functions.drop(second.digest)
        assert [item.function for item in tx.functions.list_registered("length")] == [first]
        assert tx.functions.get(second.digest) == second


def test_versions_are_not_given_out_twice_and_come_back_with_their_function(store: JobStore) -> None:
    first, second, third = (a_function("length", payload) for payload in (b"1", b"2", b"3"))
    with store.transaction() as tx:
        tx.functions.add(first, "ada")
        tx.functions.add(second, "ada")
        tx.functions.drop(second.digest)
        tx.functions.add(third, "ada")
        tx.functions.add(second, "bob")
        versions = {item.function.digest: item.version for item in tx.functions.list_registered("length")}
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
        tx.functions.add(function, "ada")
        assert tx.functions.get(function.digest) == function
