"""The states of a job."""

from __future__ import annotations

import pytest

from tidemill.jobs.errors import InvalidJobTransition
from tidemill.jobs.model.jobs import ACTIVE_STATES, NEXT_STATES, JobState, check_transition


def test_every_state_says_what_follows() -> None:
    assert NEXT_STATES.keys() == set(JobState)


def test_what_is_over_stays_over() -> None:
    for ended in set(JobState) - ACTIVE_STATES:
        assert ended.is_final
        with pytest.raises(InvalidJobTransition, match="cannot become RUNNING"):
            check_transition("j", ended, JobState.RUNNING)


def test_a_queued_job_cannot_be_done_without_running() -> None:
    with pytest.raises(InvalidJobTransition):
        check_transition("j", JobState.QUEUED, JobState.DONE)
    check_transition("j", JobState.QUEUED, JobState.RUNNING)
    check_transition("j", JobState.RUNNING, JobState.DONE)


def test_a_paused_job_is_still_active_and_has_to_be_queued_again() -> None:
    assert JobState.PAUSED in ACTIVE_STATES
    check_transition("j", JobState.RUNNING, JobState.PAUSED)
    check_transition("j", JobState.PAUSED, JobState.QUEUED)
    with pytest.raises(InvalidJobTransition):
        check_transition("j", JobState.PAUSED, JobState.RUNNING)
