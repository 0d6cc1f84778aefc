"""The states of a job and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidemill.jobs.errors import InvalidJobTransition


class JobState(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return not NEXT_STATES[self]


NEXT_STATES: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED}),
    # RUNNING to RUNNING is a take-over: the lease ran out and another worker claimed the job.
    # RUNNING to QUEUED: it was asked to pause, and to go on before it had stopped.
    JobState.RUNNING: frozenset(
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.PAUSED,
            JobState.DONE,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

ACTIVE_STATES: Final = frozenset(state for state, following in NEXT_STATES.items() if following)


def check_transition(job_id: str, current: JobState, wanted: JobState) -> None:
    if wanted not in NEXT_STATES[current]:
        raise InvalidJobTransition(job_id, current, wanted)
