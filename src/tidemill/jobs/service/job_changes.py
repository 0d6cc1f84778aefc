"""Wakes the requests that wait for jobs, with one query for all of them.

Workers are other processes, often on other machines, so a server learns from the database that a job has
changed. If every waiting request polled for itself, the load would grow with their number. Here one thread
polls for all requests of the process; it exists while there are any. It polls fast after a request has
arrived, because many jobs end within a second, and then ever more slowly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Final

from tidemill.errors import TidemillError
from tidemill.jobs.model.jobs import JobRevision

SHORTEST_INTERVAL: Final = 0.02
LONGEST_INTERVAL: Final = 0.25
# The end of a job is noticed after this share of the time that somebody has waited for it.
INTERVAL_SHARE: Final = 0.05


@dataclass(eq=False, slots=True)
class _Waiter:
    job_id: str
    wake: Callable[[JobRevision | None], object]
    since: float
    seen: JobRevision | None = None


class JobChanges:
    """The jobs that requests of this process wait for."""

    def __init__(self, read_revisions: Callable[[Collection[str]], Mapping[str, JobRevision]]) -> None:
        self._read_revisions = read_revisions
        self._waiters: list[_Waiter] = []
        self._lock = Lock()
        self._arrival = Event()
        self._poller: Thread | None = None

    def wait_for_end(self, job_id: str, timeout: float) -> None:
        """Returns when the job has ended or the time is over, or early if the database does not respond."""
        ended = Event()

        def wake(revision: JobRevision | None) -> None:
            if revision is None or revision.state.is_final:
                ended.set()

        with self.notifying(job_id, wake):
            ended.wait(timeout)

    @contextmanager
    def notifying(self, job_id: str, wake: Callable[[JobRevision | None], object]) -> Iterator[None]:
        """Calls `wake` once at first and then on each change of the job, from another thread.

        It gets None if the job is gone or the database does not respond: the caller finds out which.
        """
        waiter = _Waiter(job_id, wake, time.monotonic())
        with self._lock:
            self._waiters.append(waiter)
            if self._poller is None or not self._poller.is_alive():
                self._poller = Thread(target=self._poll, name="job changes", daemon=True)
                self._poller.start()
        self._arrival.set()
        try:
            yield
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def _poll(self) -> None:
        while waiters := self._current_waiters():
            try:
                revisions = self._read_revisions({waiter.job_id for waiter in waiters})
            except TidemillError:
                revisions = {}
            for waiter in waiters:
                revision = revisions.get(waiter.job_id)
                if revision is None or revision != waiter.seen:
                    waiter.seen = revision
                    waiter.wake(revision)
            self._arrival.wait(_interval(waiters))

    def _current_waiters(self) -> list[_Waiter]:
        self._arrival.clear()
        with self._lock:
            if not self._waiters:
                self._poller = None
            return list(self._waiters)


def _interval(waiters: Collection[_Waiter]) -> float:
    shortest_wait = time.monotonic() - max(waiter.since for waiter in waiters)
    return min(max(shortest_wait * INTERVAL_SHARE, SHORTEST_INTERVAL), LONGEST_INTERVAL)
