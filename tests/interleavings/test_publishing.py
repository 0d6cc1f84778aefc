"""Jobs that publish: the fence, the ledger and the coverage, raced in every order.

Two workers believe that a job is theirs: the first lost its lease without noticing. Each publishes a part as
the next version of the table, with the rows of that part as its coverage. Whatever happens, the ledger and
the coverage tell of exactly those parts whose manifest is a version of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest
from pyroaring import BitMap64

from tests.contract.samples import a_column, a_job
from tests.interleavings.model import Outcome, Put
from tests.interleavings.scheduler import Action, Actor
from tests.interleavings.world import Deployment, Scenario, Server, World, walk
from tidemill.catalog.errors import ConcurrentModification, TableVersionAlreadyExists
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import Unavailable
from tidemill.jobs.errors import LeaseLost
from tidemill.jobs.model.columns import subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import Job, Lease, Part
from tidemill.jobs.ports import JobTransaction

DIGEST: Final = "sha256:function"
AT_ONCE: Final = timedelta(0)
LONG: Final = timedelta(seconds=60)
DIE, LOSE = Action.DIE, Action.LOSE_ANSWER


@dataclass
class Publishing:
    """A job on the world's table, and what its workers do."""

    world: World
    job: Job
    subject_id: UUID

    @classmethod
    def submitted(cls, world: World) -> Publishing:
        table, cluster = world.tables[0].table, str(uuid4())
        column = a_column(table.table_id, "computed")
        subject_id = subject_of(column.column_id, MAIN_BRANCH)
        job = a_job(table_id=table.table_id, table=table.ident, subject_id=subject_id, cluster=cluster)
        job = replace(job, job_id=str(uuid4()))
        with world.first.store.transaction() as tx:
            tx.derived.add_column(column)
            tx.jobs.add(job)
        publishing = cls(world, job, subject_id)
        world.checks.append(publishing.check)
        return publishing

    def claimed(self, owner: str, duration: timedelta) -> Lease:
        with self.world.first.store.transaction() as tx:
            job = tx.leases.claim(owner, duration, self.job.cluster)
        assert job is not None
        return Lease(job.job_id, job.epoch, owner)

    def publish(
        self, name: str, server: int, lease: Lease | None, rows: Sequence[int], *faults: Action
    ) -> Actor:
        """A worker publishes a part, once; without a lease it claims the job first."""
        label = f"{name}'s 2"
        entry = self.world.stage(label, 2)
        table = self.world.tables[0].table

        def act(used: Server) -> None:
            held = lease or self._claim(used, name)
            if held is None:
                return
            with used.stepped_store.reading() as tx:
                current = tx.coverage.find(self.subject_id, DIGEST) or Coverage(DIGEST)
            after = replace(current, rows=current.rows | BitMap64(rows), watermark=1)

            def effect(tx: JobTransaction, version: int) -> None:
                tx.leases.check(held)
                packed = BitMap64(rows).serialize()
                tx.parts.add(Part(held.job_id, label, held.epoch, table.table_id, version, packed))
                tx.coverage.put(self.subject_id, replace(after, published=version))

            with self.world.tables[0].history.recorded(name, Put(2, label)) as event:
                try:
                    used.versions.commit(table, entry, effect)
                except TableVersionAlreadyExists:
                    event.outcome = Outcome.REFUSED
                except (LeaseLost, ConcurrentModification):
                    event.outcome = Outcome.UNDONE
                except (Unavailable, OSError) as error:
                    event.result = error
                else:
                    event.outcome = Outcome.OK

        return self.world.actor(name, server, act, *faults)

    def _claim(self, server: Server, owner: str) -> Lease | None:
        with server.stepped_store.transaction() as tx:
            job = tx.leases.claim(owner, LONG, self.job.cluster)
        return None if job is None else Lease(job.job_id, job.epoch, owner)

    def check(self) -> None:
        contents = self.world.contents(0)
        with self.world.first.store.reading() as tx:
            parts = tx.parts.list_of(self.job.job_id)
            coverage = tx.coverage.find(self.subject_id, DIGEST)
        recorded = {part.part: part.version for part in parts}
        published = {
            content: number
            for number, content in enumerate(contents or (), start=1)
            if content is not None and content.endswith("'s 2") and not content.startswith("w")
        }
        assert recorded == published, f"the ledger has {recorded}, and {published} is there"
        rows = BitMap64()
        for part in parts:
            rows |= BitMap64.deserialize(part.rows)
        assert (BitMap64() if coverage is None else coverage.rows) == rows
        assert len(recorded) == len(parts)


def _overtaken(world: World, *faults: Action) -> list[Actor]:
    """The first worker's lease is over and the second one takes the job."""
    job = Publishing.submitted(world)
    lost = job.claimed("a", AT_ONCE)
    return [job.publish("a", 0, lost, [1, 2], *faults), job.publish("b", 1, None, [2, 3])]


def _alone(world: World, *faults: Action) -> list[Actor]:
    job = Publishing.submitted(world)
    return [job.publish("a", 0, job.claimed("a", LONG), [1, 2], *faults)]


TWO: dict[str, Scenario] = {
    "a worker that lost its lease and the next": lambda w: _overtaken(w),
    "a worker and a writer by location": lambda w: [*_alone(w), w.write_by_location("w", 1, 2)],
    "a worker that is killed and a writer by location": lambda w: [
        *_alone(w, DIE),
        w.write_by_location("w", 1, 2),
    ],
    "a worker whose answers are lost and a writer by location": lambda w: [
        *_alone(w, LOSE),
        w.write_by_location("w", 1, 2),
    ],
    "a worker that is killed and a reader": lambda w: [*_alone(w, DIE), w.read("r", 1, None)],
    "a worker and a listing": lambda w: [*_alone(w), w.list_all("r", 1)],
}
THREE: dict[str, Scenario] = {
    "a worker that lost its lease, the next, and a writer by location": lambda w: [
        *_overtaken(w),
        w.write_by_location("w", 2, 2),
    ],
    "a worker that is killed without its lease, the next, and a reader": lambda w: [
        *_overtaken(w, DIE),
        w.read("r", 2, None),
    ],
}


SCENARIOS: dict[str, Scenario] = {**TWO, **THREE}


@pytest.mark.parametrize("name", SCENARIOS)
def test_ledger_and_coverage_tell_what_is_there(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name], deployment.first_orders)}")


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_ledger_and_coverage_tell_what_is_there_in_all_orders(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name])}")
