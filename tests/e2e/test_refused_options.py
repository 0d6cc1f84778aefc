"""Nonsense in a backfill is refused with the name of its field, and starts no job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.asking import asked
from tests.e2e.tables import Maker
from tidemill.sdk.errors import InvalidRequest


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@pytest.fixture(scope="module")
def untouched(lake: tidemill.Lake) -> tidemill.Table:
    """A table whose column no job may touch."""
    lake.create_namespace("untouched")
    table = Maker(lake, "untouched").numbered(3)
    table.add_column("size", size)
    return table


SIZES = ("concurrency", "intra_applier_concurrency", "task_size", "num_frags", "commit_granularity")
CHECKPOINT_SIZES = ("checkpoint_size", "min_checkpoint_size", "max_checkpoint_size")
NONSENSE: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name in (*SIZES, *CHECKPOINT_SIZES) for value in (0, -1, 1.5, "many")),
    ("min_checkpoint_size", {"min_checkpoint_size": 20, "max_checkpoint_size": 10}),
    ("checkpoint_size", {"checkpoint_size": 5, "min_checkpoint_size": 10}),
    ("checkpoint_size", {"checkpoint_size": 50, "max_checkpoint_size": 10}),
    ("batch_checkpoint_flush_interval_seconds", {"batch_checkpoint_flush_interval_seconds": -1}),
    ("read_version", {"read_version": 0}),
    ("read_version", {"read_version": 999}),
    ("read_version", {"read_version": "latest"}),
    ("cluster", {"cluster": "tpu"}),
    ("manifest", {"manifest": "nowhere"}),
    ("manifest", {"manifest": "{not json"}),
    ("manifest.pip", {"manifest": '{"pip": "pillow"}'}),
    ("manifest.conda", {"manifest": '{"conda": {"name": "x"}}'}),
    ("where", {"where": "id >"}),
    ("where", {"where": "nowhere = 1"}),
    ("where", {"where": 7}),
    ("only", {"only": "stale", "where": "id = 1"}),
    ("only", {"only": "some"}),
    ("retry_failed", {"retry_failed": "perhaps"}),
    ("retry_failed", {"retry_failed": True, "only": "stale"}),
    ("on_error", {"on_error": "ignore"}),
    ("on_error", {"on_error": ["skip"]}),
    ("on_error.action", {"on_error": {"action": "ignore"}}),
    ("on_error.attempts", {"on_error": {"attempts": 0}}),
    ("on_error.max_skipped", {"on_error": {"action": "skip", "max_skipped": -1}}),
    ("on_error.max_skipped_fraction", {"on_error": {"action": "skip", "max_skipped_fraction": 2}}),
    ("on_error.limit", {"on_error": {"action": "skip", "limit": 2}}),
    ("batch_size", {"batch_size": 10}),
    ("column", {"column": ""}),
]


@pytest.mark.parametrize(("field", "options"), NONSENSE, ids=str)
def test_nonsense_is_refused_with_the_name_of_its_field(
    server: RunningServer, untouched: tidemill.Table, field: str, options: dict[str, Any]
) -> None:
    refused = asked(server, untouched, **options)
    assert refused.status_code == 400
    assert field in refused.json()["error"]


def test_a_branch_that_does_not_exist_is_not_found(server: RunningServer, untouched: tidemill.Table) -> None:
    refused = asked(server, untouched, branch="nowhere")
    assert refused.status_code == 404
    assert "nowhere" in refused.json()["error"]


def test_what_was_refused_started_no_job(lake: tidemill.Lake, untouched: tidemill.Table) -> None:
    assert lake.jobs(table=untouched.name) == []


def test_an_option_that_does_not_exist_is_refused_before_anything_is_sent(untouched: tidemill.Table) -> None:
    with pytest.raises(TypeError, match="batch_size"):
        untouched.backfill("size", batch_size=10)  # type: ignore[call-arg]  # the fault


@pytest.mark.parametrize("manifest", ["nowhere", '{"conda": {"name": "x"}}'])
def test_a_manifest_that_cannot_be_had_is_refused_by_everything_that_takes_one(
    lake: tidemill.Lake, untouched: tidemill.Table, manifest: str
) -> None:
    view = lake.create_materialized_view("untouched.view", untouched.select("id"))
    asked: list[Callable[[], object]] = [
        lambda: untouched.backfill("size", manifest=manifest),
        lambda: untouched.explain("size", manifest=manifest),
        lambda: untouched.preview("size", manifest=manifest),
        lambda: view.refresh(manifest=manifest),
        lambda: view.explain(manifest=manifest),
    ]
    for ask in asked:
        with pytest.raises(InvalidRequest, match="manifest"):
            ask()
    lake.drop_view("untouched.view")
    assert lake.jobs(table=untouched.name) == []
