"""Which views are refreshed by themselves, when, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from pyroaring import BitMap64

from tests.contract.samples import LONG, lease_of
from tests.unit.jobs.stand import Catalog
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import Job, JobKind, JobState, new_job_id
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.plans import RefreshMode, RefreshPlan, SourceChange
from tidemill.jobs.model.views import source_subject
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.progress import ViewAssessor
from tidemill.jobs.worker.auto_jobs import AutoRefresh, AutoRefreshPolicy

AUTO = Caller("auto-refresh")


class Assessor(ViewAssessor):
    """Every view is due by one row of each source that has a newer version than it has consumed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.asked: list[str] = []
        self.rows: int | None = 1
        self.is_spoiled = False
        self.faults: dict[str, TidemillError] = {}

    def get_view(self, table: Table) -> DeclaredView:
        if table.ident.name in self.faults:
            raise self.faults[table.ident.name]
        return DeclaredView(table, self._catalog.definition(table), (), ())

    def plan(self, declared: DeclaredView, request: RefreshRequest) -> RefreshPlan:
        self.asked.append(declared.table.ident.name)
        view = declared.view
        changes = []
        for place, source in enumerate(view.sources):
            with self._catalog.store.reading() as tx:
                found = tx.coverage.find(source_subject(view.view_id, source.table_id, place), view.digest)
            latest = self._catalog.versions.latest.get(source.table_id, 1)
            consumed = None if found is None else found.watermark
            rows = 0 if consumed == latest else self.rows
            changes.append(SourceChange(source.levels, consumed, latest, rows, 0, 0))
        is_behind = any(change.inserted != 0 for change in changes)
        mode = RefreshMode.INCREMENTAL if is_behind else RefreshMode.NO_OP
        mode = RefreshMode.FULL if self.is_spoiled else mode
        return RefreshPlan(mode, "because", tuple(changes), 1)


class Jobs(JobOperations):
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def submit_refresh(
        self, caller: Caller, ident: TableIdent, request: RefreshRequest, idempotency_key: str | None
    ) -> Job:
        assert idempotency_key is not None
        with self._catalog.store.transaction() as tx:
            earlier = tx.jobs.find_by_key(caller.principal, idempotency_key)
            if earlier is not None:
                return earlier
            table = tx.tables.get(ident)
            job = Job(
                job_id=new_job_id(),
                kind=JobKind.REFRESH,
                table_id=table.table_id,
                table=ident,
                subject_id=table.table_id,
                request=request,
                state=JobState.QUEUED,
                submitted_by=caller.principal,
                created_at=tx.now(),
                idempotency_key=idempotency_key,
            )
            tx.jobs.add(job)
        return job


class Worker:
    """Looks for what is due, and runs the jobs of one catalog."""

    def __init__(self, catalog: Catalog, policy: AutoRefreshPolicy) -> None:
        self.catalog = catalog
        self.assessor = Assessor(catalog)
        self.jobs = Jobs(catalog)
        self.policy = policy
        self.auto = self.another()

    def another(self) -> AutoRefresh:
        versions = self.catalog.versions
        submit = self.jobs.submit_refresh
        return AutoRefresh(self.catalog.store, versions, self.assessor, submit, AUTO, self.policy)

    def look(self) -> list[str]:
        return [job.table.name for job in self.auto.look()]

    def run_next(self, state: JobState = JobState.DONE) -> str:
        """Ends the oldest job; if it is done, its view has consumed all there is."""
        with self.catalog.store.transaction() as tx:
            job = tx.leases.claim("w", LONG)
            assert job is not None
            view = tx.derived.find_view(job.table_id)
            assert view is not None
            if state is JobState.DONE:
                for place, source in enumerate(view.sources):
                    subject_id = source_subject(view.view_id, source.table_id, place)
                    before = tx.coverage.find(subject_id, view.digest) or Coverage(view.digest)
                    latest = self.catalog.versions.latest.get(source.table_id, 1)
                    tx.coverage.put(subject_id, replace(before, watermark=latest, rows=BitMap64(range(100))))
            tx.leases.finish(lease_of(job), replace(job, state=state))
        if state is JobState.DONE:
            self._raise_version(view.view_id)
        return job.table.name

    def change(self, table: Table) -> None:
        self._raise_version(table.table_id)

    def _raise_version(self, table_id: UUID) -> None:
        latest = self.catalog.versions.latest
        latest[table_id] = latest.get(table_id, 1) + 1


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    made = Catalog()
    yield made
    made.store.close()


@pytest.fixture
def worker(catalog: Catalog) -> Worker:
    """One that lets views not rest."""
    return Worker(catalog, AutoRefreshPolicy(cooldown=timedelta(0)))


def test_a_view_that_was_never_refreshed_is_due(catalog: Catalog, worker: Worker) -> None:
    catalog.view("view", catalog.table("docs", "id"))
    assert worker.look() == ["view"]


def test_a_view_that_does_not_refresh_itself_is_left_alone(catalog: Catalog, worker: Worker) -> None:
    catalog.view("view", catalog.table("docs", "id"), has_auto_refresh=False)
    assert worker.look() == []
    assert worker.assessor.asked == []


def test_a_view_follows_its_source(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    catalog.view("view", docs)
    worker.look()
    worker.run_next()
    assert worker.look() == []
    worker.change(docs)
    assert worker.look() == ["view"]


def test_nothing_is_planned_as_long_as_nothing_changes(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    catalog.view("view", docs)
    worker.look()
    worker.run_next()
    for _ in range(3):
        worker.look()
    assert worker.assessor.asked == ["view", "view"]
    worker.change(docs)
    worker.look()
    assert len(worker.assessor.asked) == 3


def test_workers_that_look_at_the_same_time_make_one_job(catalog: Catalog, worker: Worker) -> None:
    catalog.view("view", catalog.table("docs", "id"))
    (first,) = worker.auto.look()
    assert worker.another().look() == []
    with catalog.store.reading() as tx:
        assert [job.job_id for job in tx.jobs.list_recent(None, 10)] == [first.job_id]


def test_a_refresh_that_failed_is_tried_again_only_after_a_change(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    catalog.view("view", docs)
    worker.look()
    worker.run_next(JobState.FAILED)
    assert worker.look() == []
    assert worker.another().look() == []
    worker.change(docs)
    assert worker.look() == ["view"]


@pytest.mark.parametrize(
    ("policy", "changed", "is_due"),
    [
        (AutoRefreshPolicy(rows=3), 2, False),
        (AutoRefreshPolicy(rows=3), 3, True),
        (AutoRefreshPolicy(rows=3), None, True),
        (AutoRefreshPolicy(fraction=0.1), 9, False),
        (AutoRefreshPolicy(fraction=0.1), 10, True),
        (AutoRefreshPolicy(rows=20, fraction=0.1), 10, False),
    ],
)
def test_a_view_waits_for_enough_changed_rows(
    catalog: Catalog, policy: AutoRefreshPolicy, changed: int | None, is_due: bool
) -> None:
    worker = Worker(catalog, replace(policy, cooldown=timedelta(0)))
    docs = catalog.table("docs", "id")
    catalog.view("view", docs)
    worker.look()
    worker.run_next()
    worker.change(docs)
    worker.assessor.rows = changed
    assert worker.look() == (["view"] if is_due else [])


def test_a_view_rests_after_its_last_refresh(catalog: Catalog) -> None:
    worker = Worker(catalog, AutoRefreshPolicy(cooldown=timedelta(seconds=60)))
    docs = catalog.table("docs", "id")
    catalog.view("view", docs)
    worker.look()
    worker.run_next()
    worker.change(docs)
    assert worker.look() == []
    assert worker.assessor.asked == ["view"]


def test_a_view_waits_for_those_it_is_made_from(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    first = catalog.view("first", docs)
    second = catalog.view("second", first)
    catalog.view("third", second, docs)
    for name in ("first", "second", "third"):
        assert worker.look() == [name]
        assert worker.look() == []
        assert worker.run_next() == name
    assert worker.look() == []
    worker.change(docs)
    assert worker.look() == ["first"]


def test_views_beside_each_other_do_not_wait(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    one, other = catalog.view("one", docs), catalog.view("other", docs)
    catalog.view("both", one, other)
    assert sorted(worker.look()) == ["one", "other"]
    worker.run_next()
    assert worker.look() == []
    worker.run_next()
    assert worker.look() == ["both"]


def test_a_view_waits_for_a_refresh_that_somebody_else_has_asked_for(
    catalog: Catalog, worker: Worker
) -> None:
    by_hand = catalog.view("by_hand", catalog.table("docs", "id"), has_auto_refresh=False)
    catalog.view("view", by_hand)
    worker.jobs.submit_refresh(Caller("ada"), by_hand.ident, RefreshRequest(), "key")
    assert worker.look() == []
    worker.run_next()
    assert worker.look() == ["view"]


def test_one_that_rests_or_failed_holds_nobody_back(catalog: Catalog, worker: Worker) -> None:
    docs, others = catalog.table("docs", "id"), catalog.table("others", "id")
    first = catalog.view("first", docs)
    catalog.view("second", first, others)
    worker.look()
    worker.run_next(JobState.FAILED)
    assert worker.look() == ["second"]


def test_a_view_looks_again_when_one_above_has_consumed_more_without_a_new_version(
    catalog: Catalog, worker: Worker
) -> None:
    docs = catalog.table("docs", "id")
    first = catalog.view("first", docs, has_auto_refresh=False)
    catalog.view("both", first, docs)
    worker.look()
    worker.run_next()
    worker.look()
    asked = len(worker.assessor.asked)
    definition = catalog.definition(first)
    with catalog.store.transaction() as tx:
        tx.coverage.put(first.table_id, Coverage(definition.digest, 7))
    worker.look()
    assert len(worker.assessor.asked) == asked + 1


def test_a_view_that_others_have_spoiled_is_made_anew(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    view = catalog.view("view", docs)
    worker.look()
    worker.run_next()
    worker.assessor.is_spoiled = True
    for _ in range(2):
        worker.change(view)
        assert worker.look() == ["view"]
        worker.run_next()


def test_a_view_that_cannot_be_refreshed_keeps_no_other_from_it(catalog: Catalog, worker: Worker) -> None:
    docs = catalog.table("docs", "id")
    for name in ("bad", "good"):
        catalog.view(name, docs)
    worker.assessor.faults["bad"] = InvalidInput("id", "its source was dropped")
    assert worker.look() == ["good"]


def test_a_database_that_does_not_answer_is_told(catalog: Catalog, worker: Worker) -> None:
    catalog.view("view", catalog.table("docs", "id"))
    worker.assessor.faults["view"] = Unavailable("the database does not answer")
    with pytest.raises(Unavailable):
        worker.look()


def test_a_view_that_nobody_can_read_is_left_alone(catalog: Catalog, worker: Worker) -> None:
    catalog.view("odd", catalog.table("docs", "id"), sources=())
    assert worker.look() == []
