"""How long a job will take, judged by earlier ones of the same column or view.

A job has a price of its own, whatever its rows: it is claimed and planned, Spark starts tasks, a version is
committed. So the time is `fixed + rows * per_row`, fitted to the earlier jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.jobs.model.jobs import Job

# About what a job with hardly any rows takes on a warm session; assumed where all jobs had the same size.
USUAL_FIXED_SECONDS: Final = 1.5
# A job with many more rows than are planned does not tell how little time those can take.
COMPARABLE: Final = 10
# The newest jobs that computed something: the function, or what it calls, may have been slower long ago.
FITTED_JOBS: Final = 5


@dataclass(frozen=True, slots=True)
class PastJob:
    """How many rows a job has computed, and how long it ran."""

    rows: int
    seconds: float


def past_job(job: Job) -> PastJob | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return PastJob(job.progress.computed, (job.finished_at - job.started_at).total_seconds())


def expected_seconds(past: Sequence[PastJob], rows: int) -> float | None:
    """Expected seconds of a job with that many rows, from earlier jobs, newest first; None if unknown."""
    computing = [job for job in past if job.rows][:FITTED_JOBS]
    if not computing:
        return None
    fixed, per_row = _fitted(computing)
    return max(fixed + rows * per_row, _least(computing, rows))


def expected_idle_seconds(past: Sequence[PastJob]) -> float:
    """Of a job that finds nothing to compute."""
    return min((job.seconds for job in past if not job.rows), default=0.0)


def _fitted(past: Sequence[PastJob]) -> tuple[float, float]:
    """The line through (rows, seconds) with the least squared distance, and without negative terms."""
    mean_rows = sum(job.rows for job in past) / len(past)
    mean_seconds = sum(job.seconds for job in past) / len(past)
    spread = sum((job.rows - mean_rows) ** 2 for job in past)
    if not spread:
        fixed = min(mean_seconds, USUAL_FIXED_SECONDS)
        return fixed, (mean_seconds - fixed) / mean_rows
    per_row = sum((job.rows - mean_rows) * (job.seconds - mean_seconds) for job in past) / spread
    if per_row < 0:
        return mean_seconds, 0.0
    fixed = mean_seconds - per_row * mean_rows
    if fixed < 0:
        return 0.0, sum(job.rows * job.seconds for job in past) / sum(job.rows**2 for job in past)
    return fixed, per_row


def _least(past: Sequence[PastJob], rows: int) -> float:
    """What the fastest job took or, if that one was much larger, what any job costs in itself."""
    fastest = min(past, key=lambda job: job.seconds)
    is_comparable = fastest.rows <= COMPARABLE * rows
    return fastest.seconds if is_comparable else min(fastest.seconds, USUAL_FIXED_SECONDS)
