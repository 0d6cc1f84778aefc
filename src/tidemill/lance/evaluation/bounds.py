"""What one request may use, and the errors of those that use more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.errors import InvalidInput, Throttled, Unavailable

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """`processes` run queries at a time, and one caller may use half of them."""

    memory_bytes: int = 2048 * MIB
    seconds: float = 300
    result_bytes: int = 1024 * MIB
    processes: int = 8
    queue_seconds: float = 30

    @property
    def processes_per_caller(self) -> int:
        return max(1, (self.processes + 1) // 2)


class BoundExceeded(InvalidInput):
    """What the client sent needs more than one request may use. Nothing was changed."""

    def __init__(self, problem: str, setting: str, advice: str) -> None:
        super().__init__("request", f"{problem}; {advice}, or have the server's {setting} raised")


def memory_exceeded(bounds: QueryBounds) -> BoundExceeded:
    return BoundExceeded(
        f"its evaluation needs more than {bounds.memory_bytes:,} bytes of memory",
        "query_memory_bytes",
        "use expressions with smaller values, or fewer rows and columns at a time",
    )


def time_exceeded(bounds: QueryBounds) -> BoundExceeded:
    return BoundExceeded(
        f"its evaluation takes longer than {bounds.seconds:g} s",
        "query_seconds",
        "use a simpler expression, or fewer rows at a time",
    )


def result_exceeded(limit_bytes: int) -> BoundExceeded:
    return BoundExceeded(
        f"its result is larger than {limit_bytes:,} bytes",
        "query_result_bytes",
        "read fewer rows (limit, offset, filter) or columns at a time",
    )


def crashed(ending: str) -> InvalidInput:
    return InvalidInput(
        "request", f"its evaluation crashed the process it ran in ({ending}); use a simpler expression"
    )


def killed() -> Unavailable:
    return Unavailable(
        "The process that evaluated the request was killed from outside, perhaps because the machine has no "
        "memory left. Nothing was changed; try again"
    )


def all_busy(bounds: QueryBounds) -> Throttled:
    problem = (
        f"All query processes that you may use have been busy for {bounds.queue_seconds:g} s; try again "
        "later, with fewer queries at a time"
    )
    return Throttled(problem, 5)
