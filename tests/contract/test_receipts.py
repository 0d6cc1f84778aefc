"""ReceiptRepository, on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event

import pytest

from tests.contract.samples import LONG, NOTHING, a_namespace, a_receipt, path
from tests.contract.threads import together
from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.callers import Receipt
from tidemill.jobs.ports import JobStore
from tidemill.store import receipts

# Long enough for a statement that does not wait to have been done.
MOMENT = 0.1


def keep(store: JobStore, receipt: Receipt, lives: timedelta = LONG) -> None:
    with store.transaction() as tx:
        tx.receipts.add(receipt, lives)


def test_a_receipt_comes_back_as_it_was_added(store: JobStore) -> None:
    receipt = a_receipt("key", principal="Größe", outcome=b"\x00\xff" * (2 << 20))
    keep(store, receipt)
    with store.reading() as tx:
        assert tx.receipts.find("key") == receipt
        assert tx.receipts.find("KEY") is None


def test_a_key_that_is_used_is_refused_and_the_first_receipt_stays(store: JobStore) -> None:
    first = a_receipt("key")
    keep(store, first)
    with pytest.raises(ReceiptExists) as refused:
        keep(store, a_receipt("key", outcome=b"second"))
    assert refused.value.key == "key"
    with store.reading() as tx:
        assert tx.receipts.find("key") == first


def test_a_receipt_whose_time_is_over_is_as_if_it_were_not_there(store: JobStore) -> None:
    keep(store, a_receipt("key"), NOTHING)
    second = a_receipt(
        "key", principal="bob", operation="o", resource="r", body_digest="e" * 64, outcome=b"second"
    )
    with store.transaction() as tx:
        assert tx.receipts.find("key") is None
        tx.receipts.add(second, LONG)
    with store.reading() as tx:
        assert tx.receipts.find("key") == second
    with pytest.raises(ReceiptExists):
        keep(store, a_receipt("key"))


def test_a_receipt_lives_as_long_as_it_was_told(store: JobStore) -> None:
    keep(store, a_receipt("short"), timedelta(milliseconds=50))
    keep(store, a_receipt("long"), LONG)
    time.sleep(0.06)
    with store.reading() as tx:
        assert tx.receipts.find("short") is None
        assert tx.receipts.find("long") is not None


def test_receipts_whose_time_is_over_are_removed_and_no_others(store: JobStore) -> None:
    for number in range(3):
        keep(store, a_receipt(f"old{number}"), NOTHING)
    keep(store, a_receipt("young"))
    with store.transaction() as tx:
        assert tx.receipts.remove_expired() == 3
        assert tx.receipts.remove_expired() == 0
        assert tx.receipts.find("young") is not None


def test_not_all_are_removed_at_once(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_REMOVED", 2)
    with store.transaction() as tx:
        for number in range(5):
            tx.receipts.add(a_receipt(f"old{number}"), NOTHING)
        assert [tx.receipts.remove_expired() for _ in range(4)] == [2, 2, 1, 0]


def test_many_that_remove_at_once_remove_each_once(store: JobStore) -> None:
    with store.transaction() as tx:
        for number in range(40):
            tx.receipts.add(a_receipt(f"old{number}"), NOTHING)

    def remove() -> int:
        with store.transaction() as tx:
            return tx.receipts.remove_expired()

    outcomes = [outcome for outcome in together(*[remove] * 4) if isinstance(outcome, int)]
    assert sum(outcomes) == 40
    assert len(outcomes) == 4


def test_who_adds_a_key_that_is_being_added_waits_and_is_refused(store: JobStore) -> None:
    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as tx:
            tx.receipts.add(a_receipt("key"), LONG)
            adding = threads.submit(keep, store, a_receipt("key", outcome=b"second"))
            time.sleep(MOMENT)
            assert not adding.done()
        with pytest.raises(ReceiptExists):
            adding.result()
    with store.reading() as tx:
        assert tx.receipts.find("key") == a_receipt("key")


def test_who_waits_for_one_that_is_rolled_back_gets_the_key(store: JobStore) -> None:
    is_added, may_fail = Event(), Event()

    def fail() -> None:
        with store.transaction() as tx:
            tx.receipts.add(a_receipt("key"), LONG)
            is_added.set()
            may_fail.wait(20)
            raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        failing = threads.submit(fail)
        assert is_added.wait(20)
        adding = threads.submit(keep, store, a_receipt("key", outcome=b"second"))
        time.sleep(MOMENT)
        assert not adding.done()
        may_fail.set()
        with pytest.raises(KeyboardInterrupt):
            failing.result()
        adding.result()
    with store.reading() as tx:
        assert tx.receipts.find("key") == a_receipt("key", outcome=b"second")


@pytest.mark.parametrize("is_reused", [False, True])
def test_of_many_that_add_one_key_exactly_one_wins(store: JobStore, is_reused: bool) -> None:
    if is_reused:
        keep(store, a_receipt("key", outcome=b"old"), NOTHING)
    adders: list[Callable[[], None]] = [
        partial(keep, store, a_receipt("key", outcome=str(number).encode())) for number in range(8)
    ]
    outcomes = together(*adders)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, ReceiptExists) for outcome in outcomes) == 7
    with store.reading() as tx:
        found = tx.receipts.find("key")
    assert found == a_receipt("key", outcome=str(outcomes.index(None)).encode())


def test_a_refused_receipt_takes_what_was_done_with_it_back(store: JobStore) -> None:
    def create_again() -> None:
        with store.transaction() as tx:
            tx.namespaces.add(a_namespace("shop"))
            tx.receipts.add(a_receipt("key"), LONG)

    keep(store, a_receipt("key"))
    with pytest.raises(ReceiptExists):
        create_again()
    with store.reading() as tx:
        assert tx.namespaces.find(path("shop")) is None
