"""What a backfill does about failing rows, as options of commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tidemill.cli.options import declared_option
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.jobs import BackfillRequest
from tidemill.sdk.options import OnError, fail, retry, skip


class OnErrorChoice(StrEnum):
    FAIL = "fail"
    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """What was said about failing rows."""

    on_error: Annotated[OnErrorChoice | None, declared_option(BackfillRequest, "on_error")] = None
    attempts: Annotated[int | None, declared_option(ErrorPolicy, "attempts")] = None
    backoff: Annotated[float | None, declared_option(ErrorPolicy, "backoff_seconds")] = None
    retry_on: Annotated[list[str] | None, declared_option(ErrorPolicy, "retry_on", "EXCEPTION")] = None
    max_skipped: Annotated[int | None, declared_option(ErrorPolicy, "max_skipped")] = None
    max_skipped_fraction: Annotated[float | None, declared_option(ErrorPolicy, "max_skipped_fraction")] = None

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
