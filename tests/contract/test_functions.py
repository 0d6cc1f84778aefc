"""FunctionRepository, on every store."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.contract.samples import a_function
from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import FunctionKind
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
        assert list(tx.functions.list_all()) == [function]


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
        listed = tx.functions.list_all()
    assert [function.name for function in listed] == ["B", "length", "length", "z"]
    assert list(listed[1:3]) == [old, new]
