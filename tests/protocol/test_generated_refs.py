"""Tags and branches through the generated client, and what they mean for every operation that names them."""

from __future__ import annotations

import lance
import pytest
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import ApiClient
from lance_namespace_urllib3_client.api import BranchApi, TagApi
from lance_namespace_urllib3_client.models import (
    CreateTableBranchRequest,
    CreateTableTagRequest,
    DeleteTableBranchRequest,
    DeleteTableTagRequest,
    GetTableTagVersionRequest,
    UpdateTableTagRequest,
)

from tests.protocol.wire import TableOnWire, check_refusal, some_rows


@pytest.fixture
def tags(generated: ApiClient) -> TagApi:
    return TagApi(generated)


@pytest.fixture
def branches(generated: ApiClient) -> BranchApi:
    return BranchApi(generated)


@pytest.mark.operation("CreateTableTag", client="urllib3")
@pytest.mark.operation("UpdateTableTag", client="urllib3")
@pytest.mark.operation("DeleteTableTag", client="urllib3")
@pytest.mark.operation("ListTableTags", client="urllib3")
@pytest.mark.operation("GetTableTagVersion", client="urllib3")
def test_a_tag_lives_and_moves(tags: TagApi, table: TableOnWire) -> None:
    table.insert(some_rows())
    tags.create_table_tag(_id(table), CreateTableTagRequest(tag="good", version=1))
    assert tags.get_table_tag_version(_id(table), GetTableTagVersionRequest(tag="good")).version == 1
    tags.update_table_tag(_id(table), UpdateTableTagRequest(tag="good", version=2))
    listed = tags.list_table_tags(_id(table)).tags
    assert {name: tag.version for name, tag in listed.items()} == {"good": 2}
    assert listed["good"].manifest_size > 0
    tags.delete_table_tag(_id(table), DeleteTableTagRequest(tag="good"))
    assert tags.list_table_tags(_id(table)).tags == {}


def test_tags_come_in_pages(tags: TagApi, table: TableOnWire) -> None:
    for name in ("b", "a", "c"):
        tags.create_table_tag(_id(table), CreateTableTagRequest(tag=name, version=1))
    first = tags.list_table_tags(_id(table), limit=2)
    assert (list(first.tags), first.page_token) == (["a", "b"], "b")
    assert list(tags.list_table_tags(_id(table), limit=2, page_token="b").tags) == ["c"]


@pytest.mark.parametrize(
    ("route", "body", "status", "code"),
    [
        ("tags/create", {"tag": "here", "version": 1}, 409, 9),
        ("tags/create", {"tag": "new", "version": 9}, 404, 11),
        ("tags/create", {"tag": "new", "version": 1, "branch": "nowhere"}, 404, 22),
        ("tags/create", {"tag": "../x", "version": 1}, 400, 13),
        ("tags/create", {"tag": "ünsafe", "version": 1}, 400, 13),
        ("tags/create", {"version": 1}, 400, 13),
        ("tags/update", {"tag": "gone", "version": 1}, 404, 8),
        ("tags/update", {"tag": "here", "version": 9}, 404, 11),
        ("tags/delete", {"tag": "gone"}, 404, 8),
        ("tags/version", {"tag": "gone"}, 404, 8),
        ("branches/create", {"name": "main"}, 409, 23),
        ("branches/create", {"name": "dev"}, 409, 23),
        ("branches/create", {"name": "x", "from_branch": "nowhere"}, 404, 22),
        ("branches/create", {"name": "x", "from_version": 7}, 404, 11),
        ("branches/create", {"name": "a//b"}, 400, 13),
        ("branches/create", {"name": "../../x"}, 400, 13),
        ("branches/delete", {"name": "nowhere"}, 404, 22),
        ("branches/delete", {"name": "main"}, 400, 13),
    ],
)
def test_what_is_refused(
    table: TableOnWire, route: str, body: dict[str, object], status: int, code: int
) -> None:
    assert table.post("tags/create", {"tag": "here", "version": 1}).status_code == 200
    assert table.post("branches/create", {"name": "dev"}).status_code == 200
    check_refusal(table.post(route, body), status, code)


@pytest.mark.operation("CreateTableBranch", client="urllib3")
@pytest.mark.operation("ListTableBranches", client="urllib3")
@pytest.mark.operation("DeleteTableBranch", client="urllib3")
def test_a_branch_lives_and_ends(branches: BranchApi, table: TableOnWire) -> None:
    table.insert(some_rows())
    branches.create_table_branch(_id(table), CreateTableBranchRequest(name="team/dev", from_version=1))
    branches.create_table_branch(_id(table), CreateTableBranchRequest(name="sub", from_branch="team/dev"))
    listed = branches.list_table_branches(_id(table)).branches
    assert listed["team/dev"].parent_version == 1
    assert listed["team/dev"].parent_branch is None
    assert listed["sub"].parent_branch == "team/dev"
    assert table.post("version/list", params={"branch": "team/dev"}).json()["versions"][0]["version"] == 1
    refusal = table.post("branches/delete", {"name": "team/dev"})
    check_refusal(refusal, 409, 19)
    branches.delete_table_branch(_id(table), DeleteTableBranchRequest(name="sub"))
    branches.delete_table_branch(_id(table), DeleteTableBranchRequest(name="team/dev"))
    assert branches.list_table_branches(_id(table)).branches == {}
    check_refusal(table.post("version/list", params={"branch": "team/dev"}), 404, 22)
    branches.create_table_branch(_id(table), CreateTableBranchRequest(name="team/dev"))
    assert table.post("version/describe", {"branch": "team/dev"}).json()["version"]["version"] == 2


def test_a_client_makes_a_branch_and_writes_to_it(rest: RestNamespace, table: TableOnWire) -> None:
    levels = table.levels
    dataset = lance.dataset(namespace_client=rest, table_id=levels)
    dev = dataset.create_branch("dev")
    dev.insert(some_rows())
    assert [v["version"] for v in _versions(table, "dev")] == [1, 2]
    assert [v["version"] for v in _versions(table, None)] == [1]
    again = lance.dataset(namespace_client=rest, table_id=levels).checkout_version(("dev", None))
    assert again.count_rows() == 2 * dataset.count_rows()


def test_a_branch_deleted_in_storage_is_gone_and_can_come_again(
    rest: RestNamespace, table: TableOnWire
) -> None:
    dataset = lance.dataset(namespace_client=rest, table_id=table.levels)
    dataset.create_branch("dev").insert(some_rows())
    dataset.branches.delete("dev")
    check_refusal(table.post("version/list", params={"branch": "dev"}), 404, 22)
    dataset.create_branch("dev")
    assert [v["version"] for v in _versions(table, "dev")] == [1]


def test_a_branch_made_in_storage_is_known(table: TableOnWire) -> None:
    location = table.post("describe", {}).json()["location"]
    made = lance.dataset(location).create_branch("aside")
    made.insert(some_rows())
    assert [v["version"] for v in _versions(table, "aside")] == [1, 2]


def _id(table: TableOnWire) -> str:
    return f"{table.namespace}${table.name}"


def _versions(table: TableOnWire, branch: str | None) -> list[dict[str, int]]:
    params = {} if branch is None else {"branch": branch}
    versions: list[dict[str, int]] = table.post("version/list", params=params).json()["versions"]
    return versions
