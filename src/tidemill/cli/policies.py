"""What a backfill does about failing rows, as options of commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tidemill.sdk.policies import OnError, fail, retry, skip


class OnErrorChoice(StrEnum):
    FAIL = "fail"
    RETRY = "retry"
    SKIP = "skip"


ChoiceOption = Annotated[
    OnErrorChoice | None, typer.Option("--on-error", help="When the function fails on a row.")
]
AttemptsOption = Annotated[
    int | None, typer.Option("--attempts", min=1, help="How often a row is tried in all.")
]
BackoffOption = Annotated[
    float | None, typer.Option("--backoff", min=0, help="Seconds before the second attempt.")
]
RetryOnOption = Annotated[
    list[str] | None,
    typer.Option("--retry-on", metavar="EXCEPTION", help="Try again after this one only; may be repeated."),
]
MaxSkippedOption = Annotated[
    int | None, typer.Option("--max-skipped", min=0, help="Fail when more rows were skipped.")
]
FractionOption = Annotated[
    float | None,
    typer.Option("--max-skipped-fraction", min=0, max=1, help="The same, as a part of the rows."),
]


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """What was said about failing rows."""

    on_error: ChoiceOption = None
    attempts: AttemptsOption = None
    backoff: BackoffOption = None
    retry_on: RetryOnOption = None
    max_skipped: MaxSkippedOption = None
    max_skipped_fraction: FractionOption = None

    def policy(self) -> OnError | None:
        """None if nothing was said."""
        if self.on_error is OnErrorChoice.SKIP:
            return skip(self.max_skipped, self.max_skipped_fraction, self._retry())
        if self.max_skipped is not None or self.max_skipped_fraction is not None:
            raise typer.BadParameter("--max-skipped and --max-skipped-fraction need --on-error skip")
        return self._retry() or (fail() if self.on_error is OnErrorChoice.FAIL else None)

    def _retry(self) -> OnError | None:
        said = {"attempts": self.attempts, "backoff": self.backoff, "on": self.retry_on or None}
        given = {name: value for name, value in said.items() if value is not None}
        if self.on_error is OnErrorChoice.FAIL and given:
            raise typer.BadParameter("--attempts, --backoff and --retry-on are for --on-error retry or skip")
        if not given and self.on_error is not OnErrorChoice.RETRY:
            return None
        return retry(**given)  # type: ignore[arg-type]  # each name has its own type
