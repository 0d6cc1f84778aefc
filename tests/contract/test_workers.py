"""WorkerRegistry, on every store."""

from __future__ import annotations

import time

from tests.contract.threads import together
from tidemill.jobs.ports import JobStore


def test_nobody_was_seen_at_first(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.workers.last_seen_at() is None


def test_a_sign_of_life_carries_the_time_of_the_database(store: JobStore) -> None:
    with store.transaction() as tx:
        before = tx.now()
        tx.workers.beat("one")
        seen_at = tx.workers.last_seen_at()
        assert seen_at is not None
        assert before <= seen_at <= tx.now()


def test_the_last_sign_of_any_worker_counts(store: JobStore) -> None:
    seen = []
    for owner in ("one", "two", "one"):
        with store.transaction() as tx:
            tx.workers.beat(owner)
            seen.append(tx.workers.last_seen_at())
        time.sleep(0.002)
    assert None not in seen
    assert seen == sorted(set(seen), key=str)


def test_first_signs_at_the_same_time_do_not_collide(store: JobStore) -> None:
    def beat() -> None:
        with store.transaction() as tx:
            tx.workers.beat("one")

    assert list(together(*[beat] * 8)) == [None] * 8
