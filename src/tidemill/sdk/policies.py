"""What a backfill does about rows on which its function fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.jobs.model.failures import NAMED_POLICIES, ErrorAction, ErrorPolicy

# What may be written instead of a policy.
PolicyName = Literal["fail", "retry", "skip"]


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy for failing rows; made by `tidemill.fail`, `tidemill.retry` and `tidemill.skip`.

    Raises:
        ValueError: A limit that no job could keep.
    """

    policy: ErrorPolicy

    def __post_init__(self) -> None:
        if self.policy.attempts < 1:
            raise ValueError(f"attempts must be 1 or more, not {self.policy.attempts}")
        if self.policy.backoff_seconds < 0:
            raise ValueError(f"backoff must be 0 or more seconds, not {self.policy.backoff_seconds:g}")
        if self.policy.max_skipped is not None and self.policy.max_skipped < 0:
            raise ValueError(f"limit must be 0 or more rows, not {self.policy.max_skipped}")
        fraction = self.policy.max_skipped_fraction
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1, not {fraction:g}")

    def request(self) -> dict[str, Any]:
        """The form it has in a request."""
        return self.policy.to_json()


def fail() -> OnError:
    """The first row on which the function raises ends the job.

    >>> import tidemill
    >>> tidemill.fail().request()["action"]
    'fail'
    """
    return OnError(ErrorPolicy())


def retry(attempts: int = 3, backoff: float = 1.0, on: Sequence[type[BaseException] | str] = ()) -> OnError:
    """A failing row is tried again; when every attempt failed, the job does.

    Args:
        attempts: How often a row is tried in all.
        backoff: Seconds before the second attempt; doubled before each one after that.
        on: The exceptions worth another attempt, as classes or by name; none means any.

    >>> import tidemill
    >>> tidemill.retry(attempts=5, on=(ConnectionError, "TimeoutError")).request()["retry_on"]
    ['ConnectionError', 'TimeoutError']
    """
    if isinstance(on, str | type):
        raise TypeError(f"on= is a sequence of exceptions; write on=({_name(on)},)")
    names = tuple(_name(kind) for kind in on)
    return OnError(ErrorPolicy(attempts=attempts, backoff_seconds=backoff, retry_on=names))


def skip(limit: int | None = None, fraction: float | None = None, retry: OnError | None = None) -> OnError:
    """A failing row is left null and noted in `Table.errors`; the job goes on.

    Args:
        limit: The job fails when more rows than this were skipped.
        fraction: The same, as a part of the rows that the job computes, between 0 and 1.
        retry: Made by `tidemill.retry`: how a row is tried again before it is skipped.

    >>> import tidemill
    >>> policy = tidemill.skip(limit=100, retry=tidemill.retry(attempts=2)).request()
    >>> policy["action"], policy["attempts"], policy["max_skipped"]
    ('skip', 2, 100)
    """
    if retry is not None and (not isinstance(retry, OnError) or retry.policy.action is ErrorAction.SKIP):
        raise TypeError(f"retry= is made by tidemill.retry(...), not {retry!r:.80}")
    tried = (retry or fail()).policy
    return OnError(
        ErrorPolicy(ErrorAction.SKIP, tried.attempts, tried.backoff_seconds, tried.retry_on, limit, fraction)
    )


def on_error_request(given: Any) -> str | dict[str, Any]:
    """A policy or its name in the form it has in a request."""
    if isinstance(given, OnError):
        return given.request()
    if isinstance(given, str) and given in NAMED_POLICIES:
        return given
    raise TypeError(
        f"on_error= is tidemill.fail(), tidemill.retry(...), tidemill.skip(...) or one of "
        f"{', '.join(map(repr, NAMED_POLICIES))}, not {given!r:.80}"
    )


def _name(kind: type[BaseException] | str) -> str:
    if isinstance(kind, str) and kind:
        return kind
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind.__name__
    raise TypeError(f"{kind!r:.80} is neither an exception nor the name of one")
