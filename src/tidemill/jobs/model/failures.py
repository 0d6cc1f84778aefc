"""Rows on which functions failed, and what is to be done about them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from pyroaring import BitMap64

from tidemill.errors import InvalidInput
from tidemill.jobs.model.declarations import option, read_options

EXCEPTION_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class ErrorAction(StrEnum):
    """What a row that failed for good leads to."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """A row is tried `attempts` times; then the job fails, or the row is skipped and left null.

    `retry_on` are names of exceptions worth another attempt; none means any. The pause before the second
    attempt is `backoff_seconds` and doubles from then on. More skipped rows than the limits end the job.
    """

    action: ErrorAction = field(
        default=ErrorAction.FAIL,
        metadata=option("What a row leads to when every attempt failed: end the job, or leave the row null."),
    )
    attempts: int = field(
        default=1, metadata=option("How often a row is tried in all.", minimum=1, maximum=100)
    )
    backoff_seconds: float = field(
        default=1.0,
        metadata=option(
            "Seconds before the second attempt; doubled before each one after that.",
            maximum=3600,
            flag="--backoff",
        ),
    )
    retry_on: tuple[str, ...] = field(
        default=(), metadata=option("Names of the exceptions worth another attempt; any by default.")
    )
    max_skipped: int | None = field(
        default=None, metadata=option("The job fails when more rows than this were skipped.")
    )
    max_skipped_fraction: float | None = field(
        default=None, metadata=option("The same, as a fraction of the rows to compute.", maximum=1)
    )

    @classmethod
    def from_json(cls, given: Any, field: str) -> ErrorPolicy:
        """Reads the name of a policy, or an object of its fields, also as JSON text. Raises InvalidInput."""
        value = _parsed(given)
        if isinstance(value, str):
            if value not in NAMED_POLICIES:
                raise InvalidInput(field, f"{value!r:.60} is none of {', '.join(NAMED_POLICIES)}")
            return NAMED_POLICIES[value]
        if not isinstance(value, dict):
            names = ", ".join(NAMED_POLICIES)
            raise InvalidInput(field, f"must be one of {names}, or an object with an action")
        policy = read_options(cls, value, inside=field)
        has_limit = policy.max_skipped is not None or policy.max_skipped_fraction is not None
        if has_limit and policy.action is ErrorAction.FAIL:
            raise InvalidInput(f"{field}.action", "must be skip where a limit of skipped rows is given")
        for name in policy.retry_on:
            if not EXCEPTION_NAME.fullmatch(name):
                problem = f"{name!r:.60} is not the name of an exception, such as ConnectionError"
                raise InvalidInput(f"{field}.retry_on", problem)
        return policy

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads."""
        body = {**asdict(self), "action": self.action.value, "retry_on": list(self.retry_on)}
        return {name: value for name, value in body.items() if value is not None}

    def allowed_skips(self, rows: int) -> int | None:
        """How many of so many rows may be skipped; None means any number."""
        limits = [] if self.max_skipped is None else [self.max_skipped]
        if self.max_skipped_fraction is not None:
            limits.append(int(self.max_skipped_fraction * rows))
        return min(limits) if limits else None


FAIL_AT_ONCE: Final = ErrorPolicy()
NAMED_POLICIES: Final[Mapping[str, ErrorPolicy]] = {
    "fail": FAIL_AT_ONCE,
    "retry": ErrorPolicy(attempts=3),
    "skip": ErrorPolicy(ErrorAction.SKIP),
}


def _parsed(given: Any) -> Any:
    if not isinstance(given, str) or not given.lstrip().startswith("{"):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given


@dataclass(frozen=True)
class RowFailure:
    """What a function raised, and on which row; on none if it could not even be opened."""

    row_id: int | None
    exception: str
    message: str
    traceback: str
    attempts: int = 1


def is_on_row_of(failure: RowFailure, rows: BitMap64) -> bool:
    return failure.row_id is not None and failure.row_id in rows


@dataclass(frozen=True)
class RowError:
    """An entry of the error ledger: a row without a value because the function failed on it.

    A row that was not skipped ended its job; it will be computed by the next one anyway.
    """

    subject_id: UUID
    digest: str
    job_id: str
    failure: RowFailure
    is_skipped: bool
    at: datetime | None = None
