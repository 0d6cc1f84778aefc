"""Audit events that are no part of a transaction: refusals, failures, and changes of storage alone.

Refusals are queued and written by a thread, in batches, so that no response waits for them. Their number is
bounded: each principal, or address without one, may cause so many events per minute, and all together so many
times that. Those above it are only counted, and a minute later their number is written as one event for each
principal and address, with the operation `*`. So an attacker can fill neither the database nor the log.

A change that did not touch the database, such as a new tag, is written before the response, by the thread
that serves the request.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Condition, Thread
from typing import Final, Protocol

import structlog

from tidemill.catalog.auditing import AuditedAction
from tidemill.catalog.model.audit import AuditEvent, Decision, new_event_id
from tidemill.errors import CommitStateUnknown, TidemillError, Unavailable
from tidemill.server.access.failed_logins import TokenBuckets

MAX_QUEUED: Final = 10_000
MAX_COUNTED: Final = 1000
BATCH: Final = 200
RETRY_SECONDS: Final = 1.0
SUMMARY_SECONDS: Final = 60.0
# All principals and addresses together may cause this many times what one of them may.
SHARE: Final = 10
ANYTHING: Final = "*"

log = structlog.get_logger("tidemill.audit")


class AuditStore(Protocol):
    def record_audit(self, events: Sequence[AuditEvent]) -> None: ...


class AuditTrail:
    def __init__(
        self, store: AuditStore, per_minute: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock = clock
        self._each = TokenBuckets(per_minute, clock)
        self._all = TokenBuckets(per_minute * SHARE, clock)
        self._queue: deque[AuditEvent] = deque()
        self._counted: OrderedDict[tuple[str, str], AuditEvent] = OrderedDict()
        self._summary_at = clock() + SUMMARY_SECONDS
        self._changed = Condition()
        self._is_closing = False
        self._thread: Thread | None = None

    def succeeded(self, action: AuditedAction, status: int) -> None:
        """Writes the event now, unless a transaction has done it. Raises WouldBlock."""
        if not action.is_mutation or action.recorded is not None:
            return
        event = action.event(status=status)
        try:
            self._store.record_audit([event])
        except (Unavailable, CommitStateUnknown):
            # The change has been made, so the response says so.
            self._enqueue(event)
        action.recorded = event

    def refused(self, action: AuditedAction, decision: Decision, status: int, error_code: str | None) -> None:
        """Never blocks. Failures of requests that only read are no events."""
        if decision is Decision.FAILED and not action.is_mutation:
            return
        event = action.event(decision, status=status, error_code=error_code)
        if action.recorded is not None or self._is_within_limits(event):
            self._enqueue(event)
        else:
            self._count(event)

    def close(self) -> None:
        """Writes what is queued, as far as the database responds."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(RETRY_SECONDS * 5)

    def _is_within_limits(self, event: AuditEvent) -> bool:
        key = event.address if event.is_claimed or not event.principal else event.principal
        with self._changed:
            if self._each.wait(key) or self._all.wait(ANYTHING):
                return False
            self._each.take(key)
            self._all.take(ANYTHING)
        return True

    def _enqueue(self, event: AuditEvent) -> None:
        with self._changed:
            if len(self._queue) < MAX_QUEUED:
                self._queue.append(event)
                self._start()
                return
        self._count(event)

    def _count(self, event: AuditEvent) -> None:
        """Adds to the number of events that were left out; beyond MAX_COUNTED keys, all share one."""
        with self._changed:
            key = (event.principal if not event.is_claimed else "", event.address)
            if key not in self._counted and len(self._counted) >= MAX_COUNTED:
                key = ("", "")
            known = self._counted.get(key)
            self._counted[key] = replace(
                event,
                event_id=new_event_id() if known is None else known.event_id,
                principal=key[0],
                address=key[1],
                is_claimed=False,
                operation=ANYTHING,
                objects=(),
                objects_omitted=0,
                request_id="",
                status=None,
                error_code=None,
                job_id=None,
                count=1 if known is None else known.count + 1,
            )
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._seconds_to_summary())
                self._queue_summary()
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                is_done = self._is_closing and not batch
            if is_done:
                return
            if batch and not self._write(batch):
                with self._changed:
                    self._queue.extendleft(reversed(batch))
                    if self._is_closing:
                        return
                    self._changed.wait_for(lambda: self._is_closing, RETRY_SECONDS)

    def _is_due(self) -> bool:
        return bool(self._queue) or self._is_closing

    def _seconds_to_summary(self) -> float | None:
        return max(self._summary_at - self._clock(), 0) if self._counted else None

    def _queue_summary(self) -> None:
        if self._counted and (self._is_closing or self._clock() >= self._summary_at):
            self._queue.extend(self._counted.values())
            self._counted.clear()
            self._summary_at = self._clock() + SUMMARY_SECONDS

    def _write(self, events: Sequence[AuditEvent]) -> bool:
        try:
            self._store.record_audit(events)
        except Unavailable as error:
            log.warning("audit events wait for the database", events=len(events), error=str(error)[:200])
            return False
        except TidemillError as error:
            log.error("audit events could not be written", events=len(events), error=str(error)[:200])
        except Exception:
            # The thread must survive: later events may be written.
            log.exception("audit events could not be written", events=len(events))
        return True
