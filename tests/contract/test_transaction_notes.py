"""TransactionNotes, on every store."""

from __future__ import annotations

import pytest

from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.ports import JobStore


def test_a_transaction_that_nobody_noted_on_has_no_properties(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.transaction_properties.get("t/main/1") == {}


def test_properties_are_kept_as_they_were_put(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.transaction_properties.put("t/main/1", {}, {"who": "Ada", "päth": "a/b"})
    with store.transaction() as tx:
        assert tx.transaction_properties.get("t/main/1") == {"who": "Ada", "päth": "a/b"}
        assert tx.transaction_properties.get("t/main/2") == {}


def test_properties_are_put_in_the_place_of_those_before(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.transaction_properties.put("k", {}, {"a": "1", "b": "2"})
        tx.transaction_properties.put("k", {"a": "1", "b": "2"}, {"b": "3"})
        assert tx.transaction_properties.get("k") == {"b": "3"}


@pytest.mark.parametrize("before", [{}, {"a": "0"}, {"a": "1", "b": "2"}])
def test_properties_that_changed_meanwhile_are_left_alone(store: JobStore, before: dict[str, str]) -> None:
    with store.transaction() as tx:
        tx.transaction_properties.put("k", {}, {"a": "1"})
    with store.transaction() as tx, pytest.raises(ConcurrentModification):
        tx.transaction_properties.put("k", before, {"a": "2"})
    with store.transaction() as tx:
        assert tx.transaction_properties.get("k") == {"a": "1"}


def test_what_is_rolled_back_is_not_noted(store: JobStore) -> None:
    def fail() -> None:
        with store.transaction() as tx:
            tx.transaction_properties.put("k", {}, {"a": "1"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with store.transaction() as tx:
        assert tx.transaction_properties.get("k") == {}
