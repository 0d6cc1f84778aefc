"""Requests of jobs as they lie in the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tidemill.catalog.model.functions import Environment
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import JobKind
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    JobRequest,
    PreviewRequest,
    RefreshRequest,
    RowSelection,
    VerifyRequest,
)
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.store.column_types import value_of
from tidemill.store.jobs import REQUESTS

# As servers of release 0.1 store them: these lie in databases, so they are not to be changed.
STORED_BACKFILL = """{"column": "size", "branch": "dev", "where": "id > 1", "only": "stale", "read_version":
3, "concurrency": 8, "num_frags": 2, "commit_granularity": 4, "checkpoint_size": 100, "min_checkpoint_size":
10, "max_checkpoint_size": 1000, "flush_interval_seconds": 0.5, "intra_applier_concurrency": 2, "task_size":
500, "cluster": "gpu", "environment": {"packages": ["pillow==11.0"], "variables": {"MODEL": "small"}},
"on_error": {"action": "skip", "attempts": 2, "backoff_seconds": 0.5, "retry_on": ["OSError"],
"max_skipped": 5, "max_skipped_fraction": 0.5}}"""
STORED_DEFAULTS = """{"column": "size", "branch": null, "where": null, "only": null, "read_version": null,
"concurrency": null, "num_frags": null, "commit_granularity": null, "checkpoint_size": null,
"min_checkpoint_size": null, "max_checkpoint_size": null, "flush_interval_seconds": null,
"intra_applier_concurrency": null, "task_size": null, "cluster": null, "environment": null, "on_error":
{"action": "fail", "attempts": 1, "backoff_seconds": 1.0, "retry_on": [], "max_skipped": null,
"max_skipped_fraction": null}}"""
STORED_PREVIEW = """{"column": "size", "rows": 5, "branch": "dev", "where": "id > 1", "cluster": "gpu",
"environment": {"packages": ["pillow==11.0"], "variables": {"MODEL": "small"}}}"""
STORED_REFRESH = """{"source_version": 3, "concurrency": 8, "intra_applier_concurrency": 2,
"max_rows_per_fragment": 100, "source_task_size": 7, "output_limit": 0, "cluster": "gpu", "environment":
{"packages": ["pillow==11.0"], "variables": {"MODEL": "small"}}, "policy": "full", "on_error":
{"action": "skip", "attempts": 2, "backoff_seconds": 0.5, "retry_on": ["OSError"], "max_skipped": 5,
"max_skipped_fraction": 0.5}}"""
ENVIRONMENT = Environment(("pillow==11.0",), {"MODEL": "small"})
POLICY = ErrorPolicy(ErrorAction.SKIP, 2, 0.5, ("OSError",), 5, 0.5)
REQUESTS_AND_FORMS: list[tuple[JobKind, str, JobRequest]] = [
    (
        JobKind.BACKFILL,
        STORED_BACKFILL,
        BackfillRequest(
            column="size",
            branch="dev",
            where="id > 1",
            only=RowSelection.STALE,
            read_version=3,
            concurrency=8,
            num_frags=2,
            commit_granularity=4,
            checkpoint_size=100,
            min_checkpoint_size=10,
            max_checkpoint_size=1000,
            flush_interval_seconds=0.5,
            intra_applier_concurrency=2,
            task_size=500,
            cluster="gpu",
            environment=ENVIRONMENT,
            on_error=POLICY,
        ),
    ),
    (JobKind.BACKFILL, STORED_DEFAULTS, BackfillRequest("size")),
    (JobKind.PREVIEW, STORED_PREVIEW, PreviewRequest("size", 5, "dev", "id > 1", "gpu", ENVIRONMENT)),
    (
        JobKind.REFRESH,
        STORED_REFRESH,
        RefreshRequest(3, 8, 2, 100, 7, 0, "gpu", ENVIRONMENT, policy=RefreshPolicy.FULL, on_error=POLICY),
    ),
    (JobKind.VERIFY, '{"rows": 10, "seed": 3, "cluster": "gpu"}', VerifyRequest(10, 3, "gpu")),
    (
        JobKind.INDEX,
        '{"branch": "main", "name": "i", "column": "a.b", "index_type": "BTREE", "parameters": {"k": 1},'
        ' "is_replacement": true}',
        IndexRequest("main", "i", "a.b", "BTREE", {"k": 1}, is_replacement=True),
    ),
]


def leaf_types(value: Any) -> Any:
    """An enum member equals its text, so equality alone would not notice one that came back as `str`."""
    if isinstance(value, dict):
        return {key: leaf_types(entry) for key, entry in value.items()}
    return type(value)


@pytest.mark.parametrize(("kind", "stored", "request_"), REQUESTS_AND_FORMS)
def test_what_servers_stored_until_now_is_still_read(
    kind: JobKind, stored: str, request_: JobRequest
) -> None:
    read = value_of(REQUESTS[kind], json.loads(stored))
    assert read == request_
    assert leaf_types(asdict(read)) == leaf_types(asdict(request_))


@pytest.mark.parametrize(("kind", "stored", "request_"), REQUESTS_AND_FORMS)
def test_older_servers_find_all_that_they_know(kind: JobKind, stored: str, request_: JobRequest) -> None:
    written = json.loads(json.dumps(asdict(request_)))
    assert {key: written[key] for key in json.loads(stored)} == json.loads(stored)
    assert value_of(REQUESTS[kind], written) == request_


def test_what_is_not_stored_has_its_default() -> None:
    assert value_of(BackfillRequest, {"column": "size"}) == BackfillRequest("size")
    assert value_of(ErrorPolicy, {}) == ErrorPolicy()


def test_what_a_newer_server_stored_is_ignored() -> None:
    assert value_of(VerifyRequest, {"seed": 3, "surprise": 1}) == VerifyRequest(seed=3)
