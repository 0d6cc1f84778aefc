"""The options of jobs: checked by name here, by value on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.sdk.manifests import manifest_request
from tidemill.sdk.policies import on_error_request

BACKFILL_OPTIONS: Final = (
    "branch",
    "where",
    "only",
    "retry_failed",
    "on_error",
    "read_version",
    "concurrency",
    "intra_applier_concurrency",
    "task_size",
    "num_frags",
    "commit_granularity",
    "checkpoint_size",
    "min_checkpoint_size",
    "max_checkpoint_size",
    "batch_checkpoint_flush_interval_seconds",
    "cluster",
    "manifest",
)
PREVIEW_OPTIONS: Final = ("where", "branch", "cluster", "manifest")
REFRESH_OPTIONS: Final = (
    "full",
    "policy",
    "src_version",
    "output_limit",
    "on_error",
    "concurrency",
    "intra_applier_concurrency",
    "source_task_size",
    "max_rows_per_fragment",
    "cluster",
    "manifest",
)


def policy_request(given: Any) -> str:
    """How a view is refreshed, by its name."""
    try:
        return RefreshPolicy(given).value
    except ValueError as error:
        raise ValueError(
            f"policy= is one of {', '.join(map(repr, map(str, RefreshPolicy)))}, not {given!r:.60}"
        ) from error


# Those that have a form of their own on the wire.
RENDERED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "on_error": on_error_request,
    "manifest": manifest_request,
    "policy": policy_request,
}


def backfill_body(options: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(options, BACKFILL_OPTIONS, "backfill")


def preview_body(options: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(options, PREVIEW_OPTIONS, "preview")


def refresh_body(options: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(options, REFRESH_OPTIONS, "refresh")


def _checked(options: Mapping[str, Any], known: tuple[str, ...], job: str) -> dict[str, Any]:
    for name in options:
        if name not in known:
            raise TypeError(f"{job} has no option '{name}'; there are {', '.join(known)}")
    return {name: _rendered(name, value) for name, value in options.items() if value is not None}


def _rendered(name: str, value: Any) -> Any:
    return RENDERED[name](value) if name in RENDERED else value
