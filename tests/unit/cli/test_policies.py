"""What options say about failing rows."""

from __future__ import annotations

import pytest
import typer

from tidemill.cli.options import ErrorOptions, OnErrorChoice
from tidemill.sdk.options import OnError, fail, retry, skip

FAIL, RETRY, SKIP = OnErrorChoice.FAIL, OnErrorChoice.RETRY, OnErrorChoice.SKIP


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (ErrorOptions(), None),
        (ErrorOptions(FAIL), fail()),
        (ErrorOptions(RETRY), retry()),
        (ErrorOptions(attempts=5), retry(5)),
        (ErrorOptions(RETRY, backoff=0.5, retry_on=["OSError"]), retry(backoff=0.5, on=["OSError"])),
        (ErrorOptions(SKIP), skip()),
        (ErrorOptions(SKIP, max_skipped=3, max_skipped_fraction=0.5), skip(3, 0.5)),
        (ErrorOptions(SKIP, attempts=2, max_skipped=0), skip(0, retry=retry(2))),
    ],
)
def test_options_make_a_policy(options: ErrorOptions, policy: OnError | None) -> None:
    assert options.policy() == policy


@pytest.mark.parametrize(
    "options",
    [
        ErrorOptions(max_skipped=3),
        ErrorOptions(RETRY, max_skipped_fraction=0.1),
        ErrorOptions(FAIL, attempts=2),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: ErrorOptions) -> None:
    with pytest.raises(typer.BadParameter, match="--on-error"):
        options.policy()
