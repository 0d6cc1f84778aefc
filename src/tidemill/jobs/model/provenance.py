"""Where the values of a column come from, and which of them are out of date."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FunctionRows:
    """How many rows hold a value of one version of a function."""

    digest: str
    name: str
    rows: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """The rows of a column at a version of its table: fresh, stale or missing; some of the fresh ones failed.

    Stale rows hold a value of another function version or of inputs that changed since; missing ones never
    had a value. Rows that were skipped because the function failed count as fresh and as failed.
    """

    column: str
    branch: str
    version: int
    rows: int
    fresh: int
    stale: int
    missing: int
    failed: int
    functions: tuple[FunctionRows, ...]
