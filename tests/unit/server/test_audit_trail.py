from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.waiting import eventually
from tidemill.catalog.auditing import AuditedAction, acting
from tidemill.catalog.model.audit import AuditEvent, AuditProtocol, Decision
from tidemill.catalog.model.tables import Page
from tidemill.server.audit_trail import MAX_COUNTED, SHARE, SUMMARY_SECONDS, AuditTrail
from tidemill.store.engine import SqlStore, open_store

PER_MINUTE = 3


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Trail:
    """A trail over a store in memory, and what is in it."""

    def __init__(self) -> None:
        self.store: SqlStore = open_store("sqlite://")
        self.clock = Clock()
        self.trail = AuditTrail(self.store, PER_MINUTE, self.clock)

    def refuse(self, principal: str = "ana", address: str = "10.0.0.1", *, is_claimed: bool = False) -> None:
        action = AuditedAction(principal, AuditProtocol.LANCE, "POST /v1/x", address, is_claimed=is_claimed)
        self.trail.refused(action, Decision.DENIED, 403, "permission_denied")

    def closed(self) -> list[AuditEvent]:
        """All events, once those that are queued have been written."""
        self.trail.close()
        return self.events()

    def events(self) -> list[AuditEvent]:
        with self.store.reading() as tx:
            return list(tx.audit.list_page(Page(limit=10_000)))


@pytest.fixture
def trail() -> Iterator[Trail]:
    opened = Trail()
    yield opened
    opened.trail.close()
    opened.store.close()


def numbers(events: list[AuditEvent]) -> dict[tuple[str, str, str], list[int]]:
    """The counts of the events by principal, address and operation."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for event in events:
        found.setdefault((event.principal, event.address, event.operation), []).append(event.count)
    return found


def test_refusals_above_the_limit_become_one_event_with_their_number(trail: Trail) -> None:
    for _ in range(PER_MINUTE + 5):
        trail.refuse()
    assert numbers(trail.closed()) == {
        ("ana", "10.0.0.1", "POST /v1/x"): [1] * PER_MINUTE,
        ("ana", "10.0.0.1", "*"): [5],
    }


def test_the_summary_is_written_after_a_minute_and_says_nothing_about_single_requests(trail: Trail) -> None:
    for _ in range(PER_MINUTE + 2):
        trail.refuse()
    trail.clock.now = SUMMARY_SECONDS
    trail.refuse()
    [summary] = eventually(lambda: [one for one in trail.events() if one.operation == "*"], "the summary")
    assert (summary.count, summary.decision) == (2, Decision.DENIED)
    assert (summary.status, summary.error_code, summary.request_id, summary.objects) == (None, None, "", ())


def test_a_principal_may_cause_events_again_after_a_while(trail: Trail) -> None:
    for _ in range(PER_MINUTE + 1):
        trail.refuse()
    trail.clock.now = 60 / PER_MINUTE
    trail.refuse()
    assert numbers(trail.closed())["ana", "10.0.0.1", "POST /v1/x"] == [1] * (PER_MINUTE + 1)


def test_one_principal_does_not_take_the_share_of_another(trail: Trail) -> None:
    for _ in range(PER_MINUTE * 2):
        trail.refuse("ana")
    trail.refuse("bob")
    assert numbers(trail.closed())["bob", "10.0.0.1", "POST /v1/x"] == [1]


def test_claimed_principals_count_by_their_address(trail: Trail) -> None:
    for number in range(PER_MINUTE + 2):
        trail.refuse(f"claimed{number}", is_claimed=True)
    trail.refuse("", "10.0.0.2")
    found = numbers(trail.closed())
    assert found["", "10.0.0.1", "*"] == [2]
    assert found["", "10.0.0.2", "POST /v1/x"] == [1]


def test_all_together_have_a_limit(trail: Trail) -> None:
    for number in range(PER_MINUTE * SHARE + 7):
        trail.refuse(f"p{number}")
    found = trail.closed()
    assert sum(event.operation != "*" for event in found) == PER_MINUTE * SHARE
    assert sum(event.count for event in found) == PER_MINUTE * SHARE + 7


def test_the_number_of_summaries_is_bounded_and_no_refusal_is_left_out(trail: Trail) -> None:
    count = PER_MINUTE * SHARE + MAX_COUNTED + 50
    for number in range(count):
        trail.refuse(f"p{number}")
    found = trail.closed()
    assert sum(event.operation == "*" for event in found) == MAX_COUNTED + 1
    assert sum(event.count for event in found) == count
    assert numbers(found)["", "", "*"] == [50]


def test_the_failure_of_a_recorded_change_is_never_only_counted(trail: Trail) -> None:
    for _ in range(PER_MINUTE + 1):
        trail.refuse()
    action = AuditedAction("ana", AuditProtocol.LANCE, "POST /v1/y")
    with acting(None):
        trail.trail.succeeded(action, 200)
    trail.trail.refused(action, Decision.FAILED, 503, "unavailable")
    [found] = [event for event in trail.closed() if event.operation == "POST /v1/y"]
    assert (found.decision, found.status) == (Decision.FAILED, 503)


def test_failures_of_requests_that_only_read_are_no_events(trail: Trail) -> None:
    action = AuditedAction("ana", AuditProtocol.LANCE, "GET /v1/x", is_mutation=False)
    trail.trail.refused(action, Decision.FAILED, 404, "table_not_found")
    assert trail.closed() == []
