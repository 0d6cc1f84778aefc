"""The knobs of jobs: checked by name here, by value on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

BACKFILL_KNOBS: Final = (
    "where",
    "read_version",
    "concurrency",
    "num_frags",
    "commit_granularity",
    "checkpoint_size",
    "min_checkpoint_size",
    "max_checkpoint_size",
    "batch_checkpoint_flush_interval_seconds",
)
REFRESH_KNOBS: Final = ("src_version", "concurrency", "max_rows_per_fragment", "full")


def backfill_body(knobs: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(knobs, BACKFILL_KNOBS, "backfill")


def refresh_body(knobs: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(knobs, REFRESH_KNOBS, "refresh")


def _checked(knobs: Mapping[str, Any], known: tuple[str, ...], job: str) -> dict[str, Any]:
    for name in knobs:
        if name not in known:
            raise TypeError(f"{job} has no option '{name}'; there are {', '.join(known)}")
    return {name: value for name, value in knobs.items() if value is not None}
