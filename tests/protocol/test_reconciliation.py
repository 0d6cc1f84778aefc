"""Clients that change a table in storage without a word: the catalog finds out and goes on from there."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace

import tidemill
from tests.e2e.waiting import eventually
from tests.protocol.wire import TableOnWire, check_refusal, commit_body, final_name, some_rows, stream


def test_a_direct_commit_becomes_a_version(table: TableOnWire) -> None:
    lance.write_dataset(some_rows(10), str(table.directory), mode="append")
    assert table.asked("describe")["version"] == 2
    assert table.numbers() == [1, 2]
    assert table.asked("count_rows", {}) == 6
    assert table.insert(some_rows(20))["version"] == 3


def test_a_direct_commit_wins_over_a_late_one(table: TableOnWire) -> None:
    staged = table.stage(2)
    lance.write_dataset(some_rows(10), str(table.directory), mode="append")
    check_refusal(table.post("version/create", commit_body(2, staged)), 409, 14)
    assert table.asked("version/describe", {"version": 2})["version"]["version"] == 2
    assert table.asked("count_rows", {}) == 6


def test_a_managed_writer_goes_on_after_direct_commits(rest: RestNamespace, table: TableOnWire) -> None:
    stale = lance.dataset(namespace_client=rest, table_id=table.levels)
    for first in (10, 20):
        lance.write_dataset(some_rows(first), str(table.directory), mode="append")
    stale.insert(some_rows(30))
    assert table.numbers() == [1, 2, 3, 4]
    assert table.asked("count_rows", {}) == 12


def test_old_versions_that_were_cleaned_up_are_not_listed(rest: RestNamespace, table: TableOnWire) -> None:
    for first in (10, 20, 30):
        table.insert(some_rows(first))
    dataset = lance.dataset(namespace_client=rest, table_id=table.levels)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert table.numbers() == [4]
    check_refusal(table.post("version/describe", {"version": 2}), 404, 11)
    check_refusal(table.post("describe", {"version": 2}), 404, 11)
    assert table.insert(some_rows(40))["version"] == 5


@pytest.mark.parametrize("count", [1, 2])
def test_latest_versions_that_were_deleted_are_forgotten(table: TableOnWire, count: int) -> None:
    for first in (10, 20):
        table.insert(some_rows(first))
    for version in range(3, 3 - count, -1):
        (table.directory / "_versions" / final_name(version)).unlink()
    assert table.asked("describe")["version"] == 3 - count
    assert table.numbers() == list(range(1, 4 - count))
    assert table.asked("count_rows", {}) == 9 - 3 * count
    assert table.insert(some_rows(50))["version"] == 4 - count


REQUESTS: list[tuple[str, Any]] = [
    ("describe", {}),
    ("query", {"k": 1, "vector": []}),
    ("count_rows", {}),
    ("version/list", None),
    ("version/describe", {"version": 1}),
    ("stats", {}),
    ("tags/list", {}),
    ("restore", {"version": 1}),
    ("delete", {"predicate": "id = 1"}),
    ("update", {"updates": [["text", "'x'"]]}),
]


@pytest.mark.parametrize("missing", ["the manifests", "the directory", "the warehouse"])
def test_storage_that_is_away_is_not_an_empty_table(table: TableOnWire, missing: str) -> None:
    table.insert(some_rows(4))
    before = table.state()
    hidden = {
        "the manifests": table.directory / "_versions",
        "the directory": table.directory,
        "the warehouse": table.directory.parent,
    }[missing]
    away = hidden.rename(hidden.with_name(f"{hidden.name}.away"))
    try:
        if missing == "the manifests":
            hidden.mkdir()
        for action, body in REQUESTS:
            check_refusal(table.post(action, body), 503, 17)
        check_refusal(table.post("insert", content=stream(some_rows(7))), 503, 17)
        check_refusal(table.post("version/create", commit_body(3, away / "x", manifest_path="x")), 400, 13)
        other = TableOnWire(table.http, table.namespace, "other")
        if missing == "the warehouse":
            check_refusal(other.post("create", content=stream(some_rows())), 503, 17)
            # A report serves all who ask within a second.
            eventually(lambda: table.http.get("/api/v1/health").status_code == 503, "health tells")
            health = table.http.get("/api/v1/health").json()
            assert health["status"] == "degraded"
            assert str(hidden) in health["storage"]
        assert missing == "the manifests" or not hidden.exists()
    finally:
        if missing == "the manifests":
            hidden.rmdir()
        away.rename(hidden)
    assert table.state() == before
    assert table.insert(some_rows(7))["version"] == 3


def test_a_table_whose_storage_is_gone_for_good_can_be_dropped(table: TableOnWire) -> None:
    shutil.rmtree(table.directory)
    assert table.post("describe", {}).status_code == 503
    assert table.post("drop", {}).status_code == 200


def test_a_table_whose_storage_is_gone_for_good_can_be_deregistered(table: TableOnWire) -> None:
    shutil.rmtree(table.directory)
    assert table.post("deregister", {}).status_code == 200


def test_what_was_computed_from_a_lost_version_is_computed_again(
    lake: tidemill.Lake, http: httpx.Client, namespace: str
) -> None:
    """The lost version's number is given out again: a watermark on it would hide the new rows."""

    @tidemill.udf
    def size(text: str) -> int:
        return len(text)

    docs = lake.create_table(f"{namespace}.docs", some_rows())
    docs.add_column("size", size)
    docs.add(some_rows(10).append_column("size", pa.nulls(3, pa.int64())))
    docs.backfill("size").wait(timeout=120)
    wire = TableOnWire(http, namespace, "docs")
    latest = wire.numbers()[-1]
    for version in range(latest, latest - 2, -1):
        (wire.directory / "_versions" / final_name(version)).unlink()
    for first in (100, 200):
        docs.add(some_rows(first).append_column("size", pa.nulls(3, pa.int64())))
    docs.backfill("size").wait(timeout=120)
    rows = docs.to_arrow()
    assert rows["size"].to_pylist() == [len(text) for text in rows["text"].to_pylist()]
