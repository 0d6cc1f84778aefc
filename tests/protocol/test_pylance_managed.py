"""pylance on managed tables: branches, tags, cleanup, and commits that go past the server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace

from tests.protocol.wire import TableOnWire, some_rows

operation = pytest.mark.operation
writes = operation("DescribeTable", "ListTableVersions", "CreateTableVersion", client="pylance")


@pytest.fixture
def levels(rest: RestNamespace, namespace: str) -> list[str]:
    """A table of three rows, made by pylance."""
    path = [namespace, "t"]
    write(rest, path, some_rows(), "create")
    return path


@pytest.fixture
def on_wire(http: httpx.Client, levels: list[str]) -> TableOnWire:
    return TableOnWire(http, *levels)


def write(rest: RestNamespace, levels: list[str], rows: pa.Table, mode: str) -> lance.LanceDataset:
    return lance.write_dataset(rows, namespace_client=rest, table_id=levels, mode=mode)


def opened(rest: RestNamespace, levels: list[str], version: Any = None) -> lance.LanceDataset:
    return lance.dataset(namespace_client=rest, table_id=levels, version=version)


def ids(dataset: lance.LanceDataset) -> list[int]:
    found: list[int] = dataset.to_table(columns=["id"])["id"].to_pylist()
    return sorted(found)


def answered_ids(on_wire: TableOnWire) -> list[int]:
    """What the server finds in the table, by its own reading."""
    answer = on_wire.post("query", {"k": 1000, "columns": {"column_names": ["id"]}})
    assert answer.status_code == 200, answer.text
    found: list[int] = pa.ipc.open_file(answer.content).read_all()["id"].to_pylist()
    return sorted(found)


@writes
def test_the_server_reads_what_the_client_wrote(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    write(rest, levels, some_rows(4), "append")
    opened(rest, levels).delete("id = 2")
    assert answered_ids(on_wire) == [1, 3, 4, 5, 6]


@writes
@operation("InsertIntoTable", client="http")
def test_server_and_client_write_in_turns(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    held = opened(rest, levels)
    on_wire.insert(some_rows(4))
    held.insert(some_rows(7))
    on_wire.insert(some_rows(10))
    held.checkout_latest()
    assert (held.version, ids(held), on_wire.numbers()) == (4, list(range(1, 13)), [1, 2, 3, 4])


@writes
def test_a_handle_opened_before_other_commits_still_commits(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    stale = opened(rest, levels)
    for first in (4, 7):
        write(rest, levels, some_rows(first), "append")
    stale.update({"text": "'new'"}, where="id = 1")
    assert (on_wire.numbers(), opened(rest, levels).count_rows("text = 'new'")) == ([1, 2, 3, 4], 1)


@writes
def test_indexes_and_compaction_work_together(rest: RestNamespace, levels: list[str]) -> None:
    dataset = opened(rest, levels)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("text", "INVERTED")
    write(rest, levels, some_rows(4), "append")
    dataset = opened(rest, levels)
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    dataset = opened(rest, levels)
    assert {index.name for index in dataset.describe_indices()} == {"id_idx", "text_idx"}
    assert ids(dataset) == [1, 2, 3, 4, 5, 6]
    found = dataset.to_table(full_text_query="5", columns=["id"])
    assert found["id"].to_pylist() == [5]


@operation("DescribeTableVersion", client="pylance")
def test_older_versions_stay_as_they_were(rest: RestNamespace, levels: list[str]) -> None:
    write(rest, levels, some_rows(4), "append")
    opened(rest, levels).delete("id > 1")
    write(rest, levels, some_rows(7), "overwrite")
    history = [ids(opened(rest, levels, number)) for number in (1, 2, 3, 4)]
    assert history == [[1, 2, 3], [1, 2, 3, 4, 5, 6], [1], [7, 8, 9]]
    assert ids(opened(rest, levels).checkout_version(2)) == history[1]


@operation("ListTableTags", "GetTableTagVersion", client="pylance")
def test_tags_of_the_client_are_known_to_the_server(rest: RestNamespace, levels: list[str]) -> None:
    dataset = write(rest, levels, some_rows(4), "append")
    dataset.tags.create("first", 1)
    asked = api.GetTableTagVersionRequest(id=levels, tag="first")
    assert rest.get_table_tag_version(asked).version == 1
    dataset.tags.update("first", 2)
    assert rest.get_table_tag_version(asked).version == 2
    dataset.tags.delete("first")
    assert rest.list_table_tags(api.ListTableTagsRequest(id=levels)).tags == {}


@operation("CreateTableVersion", "ListTableVersions", "ListTableBranches", client="pylance")
def test_a_branch_of_the_client_is_known_to_the_server(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    write(rest, levels, some_rows(4), "append")
    branch = opened(rest, levels).create_branch("dev", 1)
    assert ids(branch) == [1, 2, 3]
    listed = rest.list_table_branches(api.ListTableBranchesRequest(id=levels)).branches
    assert {name: found.parent_version for name, found in listed.items()} == {"dev": 1}
    versions = on_wire.asked("version/list", params={"branch": "dev"})["versions"]
    assert [version["version"] for version in versions] == [1]


@operation("CreateTableVersion", "ListTableVersions", client="pylance")
def test_commits_on_a_branch_leave_the_main_branch_alone(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    branch = opened(rest, levels).create_branch("dev", 1)
    branch.insert(some_rows(10))
    branch.delete("id = 1")
    write(rest, levels, some_rows(4), "append")
    assert ids(opened(rest, levels)) == answered_ids(on_wire) == [1, 2, 3, 4, 5, 6]
    reopened = opened(rest, levels).checkout_version(("dev", None))
    assert ids(reopened) == [2, 3, 10, 11, 12]
    assert on_wire.numbers() == [1, 2]
    assert on_wire.asked("count_rows", {"branch": "dev"}) == 5


@operation("CreateTableVersion", client="pylance")
def test_a_branch_starts_from_a_tag_and_from_a_branch(rest: RestNamespace, levels: list[str]) -> None:
    dataset = write(rest, levels, some_rows(4), "append")
    dataset.tags.create("first", 1)
    from_tag = opened(rest, levels).create_branch("dev", "first")
    from_tag.insert(some_rows(10))
    nested = from_tag.create_branch("deep", ("dev", from_tag.version))
    nested.insert(some_rows(20))
    assert ids(nested) == [1, 2, 3, 10, 11, 12, 20, 21, 22]
    assert ids(opened(rest, levels).checkout_version(("dev", None))) == [1, 2, 3, 10, 11, 12]


@operation("ListTableVersions", "DescribeTableVersion", client="pylance")
def test_a_cleanup_behind_the_servers_back_is_noticed(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    for first in (4, 7):
        write(rest, levels, some_rows(first), "append")
    opened(rest, levels).optimize.compact_files()
    newest = opened(rest, levels).version
    removed = opened(rest, levels).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert removed.old_versions == newest - 1
    assert on_wire.numbers() == [newest]
    assert on_wire.post("version/describe", {"version": 1}).status_code == 404
    assert on_wire.post("describe", {"version": 1}).status_code == 404
    write(rest, levels, some_rows(10), "append")
    assert on_wire.numbers() == [newest, newest + 1]
    assert ids(opened(rest, levels)) == answered_ids(on_wire) == list(range(1, 13))


@operation("ListTableVersions", "DescribeTableVersion", client="pylance")
def test_a_cleanup_keeps_what_is_tagged(rest: RestNamespace, levels: list[str], on_wire: TableOnWire) -> None:
    dataset = write(rest, levels, some_rows(4), "append")
    dataset.tags.create("gold", 1)
    write(rest, levels, some_rows(7), "overwrite")
    opened(rest, levels).cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert on_wire.numbers() == [1, 3]
    assert ids(opened(rest, levels, "gold")) == [1, 2, 3]


@writes
def test_commits_past_the_catalog_are_taken_over(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    """A client that knows only the location commits there; the next commit through the catalog follows it."""
    lance.write_dataset(some_rows(4), str(on_wire.directory), mode="append")
    lance.dataset(str(on_wire.directory)).delete("id = 1")
    write(rest, levels, some_rows(7), "append")
    dataset = opened(rest, levels)
    assert (dataset.version, ids(dataset)) == (4, [2, 3, 4, 5, 6, 7, 8, 9])
    assert answered_ids(on_wire) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert on_wire.numbers() == [1, 2, 3, 4]


@operation("DescribeTable", "ListTableVersions", client="pylance")
def test_a_commit_past_the_catalog_is_seen_at_once(
    rest: RestNamespace, levels: list[str], on_wire: TableOnWire
) -> None:
    lance.write_dataset(some_rows(4), str(on_wire.directory), mode="append")
    assert on_wire.asked("describe")["version"] == 2
    assert answered_ids(on_wire) == [1, 2, 3, 4, 5, 6]
    assert ids(opened(rest, levels)) == [1, 2, 3, 4, 5, 6]
