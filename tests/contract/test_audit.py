"""Audit rows in the transactions of what they are about, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.contract.samples import a_namespace, path
from tidemill.catalog.auditing import AuditedAction, acting, acting_as_server, note_object
from tidemill.catalog.errors import NamespaceAlreadyExists
from tidemill.catalog.model.audit import (
    AuditEvent,
    AuditFilter,
    AuditObject,
    AuditProtocol,
    Decision,
    ObjectKind,
    first_id_at,
    new_event_id,
    time_of,
)
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.server.worker import remove_old_events
from tidemill.store.audit import MAX_REMOVED, AuditOutput, line_of
from tidemill.store.engine import SqlStore, open_store


def an_action(principal: str = "ana", operation: str = "POST /v1/x") -> AuditedAction:
    return AuditedAction(principal, AuditProtocol.LANCE, operation, "10.0.0.1", "r1")


def an_event(*levels: str, principal: str = "ana", event_id: UUID | None = None) -> AuditEvent:
    objects = (AuditObject(ObjectKind.TABLE, levels),) if levels else ()
    return AuditEvent(
        event_id or new_event_id(), principal, AuditProtocol.ICEBERG, "o", Decision.DENIED, objects=objects
    )


def events(store: SqlStore, wanted: AuditFilter | None = None, page: Page | None = None) -> list[AuditEvent]:
    with store.reading() as tx:
        return list(tx.audit.list_page(page or Page(), wanted or AuditFilter()))


def test_a_change_and_its_row_are_committed_together(sql_store: SqlStore) -> None:
    action = an_action()
    with acting(action), sql_store.transaction() as tx:
        tx.namespaces.add(a_namespace("a"))
        note_object(path("a"))
    [found] = events(sql_store)
    assert found == action.recorded
    assert found.is_committed
    assert found.decision is Decision.ALLOWED
    assert found.objects == (AuditObject(ObjectKind.NAMESPACE, ("a",)),)
    assert (found.principal, found.address, found.request_id) == ("ana", "10.0.0.1", "r1")


def test_what_is_rolled_back_has_no_row(sql_store: SqlStore) -> None:
    action = an_action()

    def add_twice() -> None:
        with acting(action), sql_store.transaction() as tx:
            tx.namespaces.add(a_namespace("a"))
            tx.namespaces.add(a_namespace("a"))

    with pytest.raises(NamespaceAlreadyExists):
        add_twice()
    assert events(sql_store) == []
    assert action.recorded is None


def test_a_transaction_that_only_reads_has_no_row(sql_store: SqlStore) -> None:
    action = an_action()
    with acting(action), sql_store.transaction() as tx:
        tx.namespaces.find(path("a"))
    assert events(sql_store) == []


def test_a_transaction_that_only_locks_has_no_row(sql_store: SqlStore) -> None:
    with sql_store.transaction() as tx:
        tx.namespaces.add(a_namespace("a"))
    with acting(an_action()), sql_store.transaction() as tx:
        tx.namespaces.lock_all([path("a")])
    assert events(sql_store) == []


def test_an_operation_of_several_transactions_has_one_row_with_all_objects(sql_store: SqlStore) -> None:
    with acting(an_action()):
        for name in ("a", "b"):
            with sql_store.transaction() as tx:
                tx.namespaces.add(a_namespace(name))
                note_object(path(name))
    [found] = events(sql_store)
    assert [one.levels for one in found.objects] == [("a",), ("b",)]


def test_the_outcome_of_a_known_action_replaces_what_was_known(sql_store: SqlStore) -> None:
    action = an_action()
    with acting(action), sql_store.transaction() as tx:
        tx.namespaces.add(a_namespace("a"))
    sql_store.record_audit([action.event(Decision.FAILED, status=503, error_code="unavailable")])
    [found] = events(sql_store)
    assert (found.decision, found.status, found.error_code) == (Decision.FAILED, 503, "unavailable")
    assert found.is_committed


def test_repairs_are_not_part_of_what_the_caller_asked_for(sql_store: SqlStore) -> None:
    with acting(an_action()):
        with acting(None), sql_store.transaction() as tx:
            tx.namespaces.add(a_namespace("a"))
        assert events(sql_store) == []
        with acting_as_server("adopt versions", path("b")), sql_store.transaction() as tx:
            tx.namespaces.add(a_namespace("b"))
    [found] = events(sql_store)
    assert (found.principal, found.protocol) == ("tidemill", AuditProtocol.SERVER)


def test_many_writers_leave_a_row_each(sql_store: SqlStore) -> None:
    def add(number: int) -> None:
        with acting(an_action()), sql_store.transaction() as tx:
            tx.namespaces.add(a_namespace(f"n{number}"))
            note_object(path(f"n{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    found = [one.objects[0].levels for one in events(sql_store)]
    assert sorted(found, key=str) == sorted(((f"n{number}",) for number in range(40)), key=str)


def test_two_stores_over_one_database_see_all_rows(sql_store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)
    try:
        for number, store in enumerate((sql_store, other)):
            with acting(an_action()), store.transaction() as tx:
                tx.namespaces.add(a_namespace(f"s{number}"))
        assert len(events(sql_store)) == len(events(other)) == 2
    finally:
        other.close()


def test_rows_can_be_turned_off(sql_store: SqlStore, store_url: str) -> None:
    silent = open_store(store_url, audit=AuditOutput(rows=False))
    try:
        with acting(an_action()), silent.transaction() as tx:
            tx.namespaces.add(a_namespace("a"))
        silent.record_audit([an_event()])
        assert events(sql_store) == []
    finally:
        silent.close()


def test_lines_escape_what_could_end_them_or_color_a_terminal() -> None:
    event = replace(an_event("home", "a\n{}\r\x1b[31m"), principal="ana\x85", job_id="\x00", address="\u2028")
    line = line_of(event)
    assert line["objects"] == [{"kind": "table", "levels": ["home", "a\\u000a{}\\u000d\\u001b[31m"]}]
    assert (line["principal"], line["job_id"], line["address"]) == ("ana\\u0085", "\\u0000", "\\u2028")


def test_pages_are_newest_first_and_leave_nothing_out(sql_store: SqlStore) -> None:
    added = [an_event() for _ in range(7)]
    sql_store.record_audit(added)
    found: list[AuditEvent] = []
    while page := events(sql_store, page=Page(str(found[-1].event_id) if found else None, 3)):
        found += page
    assert found == sorted(added, key=lambda event: event.event_id, reverse=True)


@pytest.mark.parametrize(
    ("under", "expected"),
    [
        (("a",), "table deep quoted"),
        (("a", "b"), "table deep"),
        (("a", "b", "c"), "deep"),
        (("A",), ""),
        (("a", "%"), ""),
        (('a","b',), "tricky"),
        ((), "table deep quoted tricky other none"),
    ],
    ids=str,
)
def test_events_are_found_by_the_subtree_of_their_objects(
    sql_store: SqlStore, under: tuple[str, ...], expected: str
) -> None:
    sql_store.record_audit(
        [
            an_event("a", "b", principal="table"),
            an_event("a", "b", "c", principal="deep"),
            an_event("a", '"levels":["x","y', principal="quoted"),
            an_event('a","b', principal="tricky"),
            an_event("ab", principal="other"),
            an_event(principal="none"),
        ]
    )
    found = events(sql_store, AuditFilter(under=NamespacePath(under)))
    assert {event.principal for event in found} == set(expected.split())


def test_filters_restrict_what_is_found(sql_store: SqlStore) -> None:
    sql_store.record_audit(
        [
            an_action("ana", "POST /v1/a").event(),
            an_action("bob", "POST /v1/b").event(Decision.DENIED),
            AuditEvent(new_event_id(), "ana", AuditProtocol.LANCE, "o", Decision.DENIED, is_claimed=True),
        ]
    )

    def count(wanted: AuditFilter) -> int:
        return len(events(sql_store, wanted))

    assert count(AuditFilter(principal="ana")) == 2
    assert count(AuditFilter(done_by="ana")) == 1
    assert count(AuditFilter(operation="v1/b")) == 1
    assert count(AuditFilter(operation="V1/B")) == 0
    assert count(AuditFilter(decision=Decision.DENIED)) == 2
    assert count(AuditFilter(request_id="r1")) == 2


def test_times_restrict_what_is_found(sql_store: SqlStore) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    old, new = first_id_at(at), first_id_at(at + timedelta(seconds=1))
    sql_store.record_audit([an_event(event_id=old), an_event(event_id=new)])
    assert time_of(old) == at
    assert [one.event_id for one in events(sql_store, AuditFilter(since=time_of(new)))] == [new]
    assert [one.event_id for one in events(sql_store, AuditFilter(until=time_of(new)))] == [old]


def test_old_events_are_removed_in_bounded_batches(sql_store: SqlStore) -> None:
    now = datetime.now(UTC)
    ids = [first_id_at(now - timedelta(days=2, milliseconds=number)) for number in range(MAX_REMOVED + 10)]
    kept = an_event()
    sql_store.record_audit([*(an_event(event_id=event_id) for event_id in ids), kept])
    removed = []
    for _ in range(3):
        with sql_store.transaction() as tx:
            removed.append(tx.audit.remove_before(tx.now() - timedelta(days=1)))
    assert removed == [MAX_REMOVED, 10, 0]
    assert events(sql_store) == [kept]


def test_a_worker_removes_all_old_events_and_leaves_none_about_that(sql_store: SqlStore) -> None:
    now = datetime.now(UTC)
    ids = [first_id_at(now - timedelta(days=2, milliseconds=number)) for number in range(MAX_REMOVED + 10)]
    kept = an_event()
    sql_store.record_audit([*(an_event(event_id=event_id) for event_id in ids), kept])
    assert remove_old_events(sql_store, timedelta(days=1)) == MAX_REMOVED + 10
    assert events(sql_store) == [kept]


def test_events_are_found_after_their_object_is_gone(sql_store: SqlStore) -> None:
    with acting(an_action()), sql_store.transaction() as tx:
        tx.namespaces.add(a_namespace("gone"))
        note_object(path("gone"))
    with acting(an_action()), sql_store.transaction() as tx:
        tx.namespaces.remove(path("gone"))
        note_object(path("gone"))
    assert len(events(sql_store, AuditFilter(under=path("gone")))) == 2
