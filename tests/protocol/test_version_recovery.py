"""Commits that were repeated, interrupted, or whose manifests somebody removed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import RestNamespace

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire, check_refusal, commit_body, final_name, key_of, some_rows


@pytest.fixture
def database(server: RunningServer) -> Path:
    return server.root / "catalog.db"


def interrupt(table: TableOnWire, database: Path, version: int) -> Path:
    """Puts a version back to where it was between its commit and the move of its manifest."""
    final = table.directory / "_versions" / final_name(version)
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        (staged,) = connection.execute(
            "SELECT staged_path FROM table_versions WHERE manifest_path = ?", (key_of(final),)
        ).fetchone()
    return final.rename(f"/{staged}")


def committed(table: TableOnWire, version: int) -> tuple[dict[str, Any], Any]:
    """A version committed by hand: what was sent and what came back."""
    staged = table.stage(version)
    body = commit_body(version, staged, manifest_size=staged.stat().st_size)
    return body, table.asked("version/create", body)


def test_a_commit_gives_the_final_manifest(table: TableOnWire) -> None:
    body, answer = committed(table, 2)
    version = answer["version"]
    assert version["manifest_path"] == key_of(table.directory / "_versions" / final_name(2))
    assert (version["version"], version["manifest_size"]) == (2, body["manifest_size"])


def test_the_same_commit_again_gets_the_same_answer(table: TableOnWire) -> None:
    body, answer = committed(table, 2)
    assert table.asked("version/create", body) == answer
    assert table.numbers() == [1, 2]


def test_the_same_manifest_staged_again_is_the_same_commit(table: TableOnWire) -> None:
    _, answer = committed(table, 2)
    staged = table.stage(3)
    staged.write_bytes(table.manifests()[final_name(2)])
    assert table.asked("version/create", commit_body(2, staged)) == answer


def test_another_manifest_for_the_same_version_is_a_conflict(table: TableOnWire) -> None:
    committed(table, 2)
    before = table.state()
    staged = table.stage(2)
    check_refusal(table.post("version/create", commit_body(2, staged)), 409, 14)
    assert staged.exists()
    staged.unlink()
    assert table.state() == before


@pytest.mark.parametrize(
    ("action", "body"),
    [("version/list", None), ("version/describe", {"version": 2}), ("version/describe", None)],
    ids=["list", "describe", "describe the latest"],
)
def test_an_interrupted_commit_is_finished_by_whoever_looks(
    table: TableOnWire, database: Path, action: str, body: Any
) -> None:
    table.insert(some_rows(4))
    before = table.state()
    staged = interrupt(table, database, 2)
    table.asked(action, body)
    assert (table.directory / "_versions" / final_name(2)).exists()
    assert not staged.exists()
    assert table.state() == before


def test_pylance_opens_a_table_whose_commit_was_interrupted(
    table: TableOnWire, database: Path, rest: RestNamespace
) -> None:
    table.insert(some_rows(4))
    interrupt(table, database, 2)
    assert lance.dataset(namespace_client=rest, table_id=table.levels).count_rows() == 6


def test_pylance_appends_after_an_interrupted_commit(
    table: TableOnWire, database: Path, rest: RestNamespace
) -> None:
    table.insert(some_rows(4))
    interrupt(table, database, 2)
    lance.write_dataset(some_rows(7), namespace_client=rest, table_id=table.levels, mode="append")
    assert (table.numbers(), table.asked("count_rows")) == ([1, 2, 3], 9)


def test_an_interrupted_commit_is_finished_by_its_repetition(table: TableOnWire, database: Path) -> None:
    body, answer = committed(table, 2)
    interrupt(table, database, 2)
    assert table.asked("version/create", body) == answer


def test_a_commit_that_lost_to_an_interrupted_one_is_a_conflict_with_a_readable_version(
    table: TableOnWire, database: Path
) -> None:
    committed(table, 2)
    interrupt(table, database, 2)
    check_refusal(table.post("version/create", commit_body(2, table.stage(2))), 409, 14)
    assert table.asked("version/describe", {"version": 2})["version"]["version"] == 2


@pytest.mark.parametrize("finished", ["copied", "moved"])
def test_a_client_may_have_moved_the_manifest_itself(
    table: TableOnWire, database: Path, finished: str
) -> None:
    table.insert(some_rows(4))
    before = table.state()
    staged = interrupt(table, database, 2)
    (table.directory / "_versions" / final_name(2)).write_bytes(staged.read_bytes())
    if finished == "moved":
        staged.unlink()
    assert table.state() == before
    assert not staged.exists()


def test_versions_without_their_manifest_are_not_shown(table: TableOnWire) -> None:
    for first in (4, 7, 10):
        table.insert(some_rows(first))
    (table.directory / "_versions" / final_name(2)).unlink()
    assert table.numbers() == [1, 3, 4]
    check_refusal(table.post("version/describe", {"version": 2}), 404, 11)
    check_refusal(table.post("describe", {"version": 2}), 404, 11)


def test_pages_of_versions_skip_those_without_a_manifest(table: TableOnWire) -> None:
    for first in (4, 7, 10):
        table.insert(some_rows(first))
    (table.directory / "_versions" / final_name(2)).unlink()
    first = table.asked("version/list?limit=2")
    rest = table.asked(f"version/list?limit=2&page_token={first['page_token']}")
    assert [version["version"] for version in first["versions"]] == [1, 3]
    assert [version["version"] for version in rest["versions"]] == [4]
    assert "page_token" not in rest


def test_the_latest_version_is_one_that_can_be_read(table: TableOnWire, rest: RestNamespace) -> None:
    table.insert(some_rows(4))
    (table.directory / "_versions" / final_name(2)).unlink()
    assert table.asked("version/describe")["version"]["version"] == 1
    assert table.asked("version/list?limit=1&descending=true")["versions"][0]["version"] == 1
    assert table.asked("count_rows") == 3
    assert lance.dataset(namespace_client=rest, table_id=table.levels).count_rows() == 3


def test_a_clean_up_by_a_client_leaves_the_table_usable(table: TableOnWire, rest: RestNamespace) -> None:
    for first in (4, 7):
        table.insert(some_rows(first))
    dataset = lance.dataset(namespace_client=rest, table_id=table.levels)
    dataset.cleanup_old_versions(retain_versions=1)
    assert table.numbers() == [3]
    lance.write_dataset(some_rows(10), namespace_client=rest, table_id=table.levels, mode="append")
    assert (table.numbers(), table.asked("count_rows")) == ([3, 4], 12)


def test_what_a_client_says_about_a_version_is_kept_with_it(table: TableOnWire) -> None:
    """No transaction is told of: the version itself is the identifier of its commit."""
    said = {"e_tag": '"1-2"', "metadata": {"owner": "me"}}
    answer = table.asked("version/create", commit_body(2, table.stage(2), **said))
    assert answer.keys() == {"version"}
    described = table.asked("version/describe", {"version": 2})["version"]
    assert (described["e_tag"], described["metadata"]) == (said["e_tag"], said["metadata"])
    assert described == answer["version"]
