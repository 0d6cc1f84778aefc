"""How far a view is behind, and how that is told when it cannot be refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pyroaring import BitMap64

from tests.contract.samples import LONG, NOON, a_job, an_error, lease_of
from tests.unit.jobs.stand import Catalog
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput, PermissionDenied, TidemillError, Unavailable
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import JobKind, JobState
from tidemill.jobs.model.options import RefreshRequest, VerifyRequest
from tidemill.jobs.model.plans import RefreshMode, RefreshPlan, SourceChange
from tidemill.jobs.model.views import RefreshPolicy, source_subject
from tidemill.jobs.owners import OwnerRights
from tidemill.jobs.service.status import SourceStatus, ViewStatus, ViewStatusOperations
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.progress import ViewAssessor

CHANGE = SourceChange(("docs",), 2, 5, 3, 2, 1)
BEHIND = RefreshPlan(RefreshMode.INCREMENTAL, "rows changed", (CHANGE,), 5)


class Assessor(ViewAssessor):
    """Plans what a test says, or raises it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.answer: RefreshPlan | TidemillError = BEHIND
        self.asked: list[RefreshRequest] = []

    def get_view(self, table: Table) -> DeclaredView:
        if isinstance(self.answer, TidemillError):
            raise self.answer
        return DeclaredView(table, self._catalog.definition(table), (), ())

    def plan(self, declared: DeclaredView, request: RefreshRequest) -> RefreshPlan:
        self.asked.append(request)
        assert isinstance(self.answer, RefreshPlan)
        return self.answer


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    made = Catalog()
    yield made
    made.store.close()


@pytest.fixture
def assessor(catalog: Catalog) -> Assessor:
    return Assessor(catalog)


def operations_of(catalog: Catalog, assessor: Assessor) -> ViewStatusOperations:
    sources: Any = catalog
    rights = OwnerRights(catalog.store, catalog)
    return ViewStatusOperations(catalog.store, catalog, catalog.versions, assessor, sources, rights)


def status(catalog: Catalog, assessor: Assessor, view: Table) -> ViewStatus:
    operations = operations_of(catalog, assessor)
    return operations.status(LOCAL_CALLER, view.ident)


def consume(catalog: Catalog, view: Table, source: Table, place: int, version: int) -> None:
    subject_id = source_subject(view.table_id, source.table_id, place)
    digest = catalog.definition(view).digest
    with catalog.store.transaction() as tx:
        tx.coverage.put(subject_id, Coverage(digest, version, BitMap64([1])))


def test_a_view_tells_what_it_is_and_what_it_has_consumed(catalog: Catalog, assessor: Assessor) -> None:
    docs = catalog.table("docs", "id")
    view = catalog.view("view", docs, policy=RefreshPolicy.FULL)
    consume(catalog, view, docs, 0, 2)
    catalog.versions.latest = {docs.table_id: 5, view.table_id: 4}
    found = status(catalog, assessor, view)
    assert (found.view, found.kind, found.policy) == (("view",), "query", "full")
    assert (found.has_auto_refresh, found.version) == (True, 4)
    assert (found.is_fresh, found.reason) == (False, "rows changed")
    assert found.sources == (SourceStatus(("docs",), 2, 5, 3, 2, 1),)
    assert found.sources[0].versions_behind == 3
    assert found.last_refresh is None


def test_whether_a_view_is_fresh_does_not_depend_on_its_policy(catalog: Catalog, assessor: Assessor) -> None:
    view = catalog.view("view", catalog.table("docs", "id"), policy=RefreshPolicy.FULL)
    assessor.answer = replace(BEHIND, mode=RefreshMode.NO_OP)
    assert status(catalog, assessor, view).is_fresh
    assert [request.policy for request in assessor.asked] == [RefreshPolicy.AUTO]


def test_each_source_has_a_status_of_its_own(catalog: Catalog, assessor: Assessor) -> None:
    docs, days = catalog.table("docs", "id"), catalog.table("days", "id")
    view = catalog.view("view", docs, days, statement="SELECT 1")
    consume(catalog, view, days, 1, 1)
    unread = SourceChange(("docs",), None, 1, None, None, None)
    assessor.answer = replace(BEHIND, changes=(unread, SourceChange(("days",), 1, 1, 0, 0, 0)))
    first, second = status(catalog, assessor, view).sources
    assert (first.version_consumed, first.versions_behind, first.inserted) == (None, 1, None)
    assert (second.version_consumed, second.versions_behind, second.inserted) == (1, 0, 0)


def test_a_view_without_its_source_tells_why_it_cannot_be_refreshed(
    catalog: Catalog, assessor: Assessor
) -> None:
    docs = catalog.table("docs", "id")
    view = catalog.view("view", docs)
    consume(catalog, view, docs, 0, 1)
    catalog.drop(docs)
    assessor.answer = InvalidInput("id", "docs was dropped")
    found = status(catalog, assessor, view)
    assert (found.is_fresh, found.reason) == (False, "it cannot be refreshed: id: docs was dropped")
    (source,) = found.sources
    assert (source.source, source.latest_version, source.versions_behind) == (("docs",), None, None)


def test_a_database_that_does_not_answer_is_no_status(catalog: Catalog, assessor: Assessor) -> None:
    view = catalog.view("view", catalog.table("docs", "id"))
    assessor.answer = Unavailable("the database does not answer")
    with pytest.raises(Unavailable):
        status(catalog, assessor, view)


def test_the_last_refresh_is_told_and_no_other_job(catalog: Catalog, assessor: Assessor) -> None:
    view = catalog.view("view", catalog.table("docs", "id"))
    refresh = a_job(kind=JobKind.REFRESH, subject_id=view.table_id, request=RefreshRequest())
    verify = a_job(kind=JobKind.VERIFY, subject_id=UUID(int=1), request=VerifyRequest())
    with catalog.store.transaction() as tx:
        tx.jobs.add(refresh)
        claimed = tx.leases.claim("w", LONG)
        assert claimed is not None
        ended = replace(claimed, state=JobState.DONE, result={"mode": "full"})
        tx.leases.finish(lease_of(claimed), ended)
        tx.jobs.add(verify)
    last = status(catalog, assessor, view).last_refresh
    assert last is not None
    assert (last.job_id, last.state, last.mode) == (refresh.job_id, JobState.DONE, "full")
    assert last.finished_at is not None
    assert last.finished_at > NOON


def test_a_plain_table_has_no_status(catalog: Catalog, assessor: Assessor) -> None:
    with pytest.raises(ViewNotFound):
        status(catalog, assessor, catalog.table("docs", "id"))


def test_a_view_that_the_caller_may_not_read_has_no_status(catalog: Catalog, assessor: Assessor) -> None:
    view = catalog.view("view", catalog.table("docs", "id"))
    catalog.hidden = {"view"}
    with pytest.raises(PermissionDenied):
        status(catalog, assessor, view)


def test_errors_are_those_of_the_view(catalog: Catalog, assessor: Assessor) -> None:
    view = catalog.view("view", catalog.table("docs", "id"))
    errors = [an_error(view.table_id, row) for row in (1, 5)]
    with catalog.store.transaction() as tx:
        tx.errors.settle(view.table_id, BitMap64(), errors)
    operations = operations_of(catalog, assessor)
    found = operations.errors(LOCAL_CALLER, view.ident)
    assert [error.failure.row_id for error in found] == [1, 5]
    later = operations.errors(LOCAL_CALLER, view.ident, after=1, job_id="job-1")
    assert [error.failure.row_id for error in later] == [5]
    assert operations.errors(LOCAL_CALLER, view.ident, job_id="job-2") == []
