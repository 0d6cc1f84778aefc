"""The files of tables behave alike in a local directory and in an object store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from tests.object_store import ObjectStore
from tidemill.errors import InvalidInput
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import ObjectStoreEnvironment, read_environment
from tidemill.storage.vending import NoCredentials
from tidemill.storage.warehouse import Warehouse

KINDS = ("local", "s3", "s3 without a prefix")
Opener = Callable[[str], Warehouse]


def environment_of(store: ObjectStore) -> ObjectStoreEnvironment:
    return read_environment(store.environment)


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the warehouse is to be; what lies beside it is not to be touched."""
    if request.param == "local":
        return str(tmp_path / "warehouse")
    store: ObjectStore = request.getfixturevalue("object_store")
    return f"s3://{store.new_bucket()}" + ("/lake/warehouse" if request.param == "s3" else "")


@pytest.fixture
def open_files(request: pytest.FixtureRequest, root: str) -> Opener:
    if not root.startswith("s3://"):
        return lambda place: LocalTableFiles(Path(place))
    store: ObjectStore = request.getfixturevalue("object_store")
    client = store.client()
    return lambda place: S3TableFiles(parse_prefix(place), client, environment_of(store), NoCredentials())


@pytest.fixture
def files(open_files: Opener, root: str) -> Warehouse:
    return open_files(root)


@pytest.fixture
def table(files: Warehouse) -> str:
    return files.key_of(files.location_of(uuid4()))


def test_a_new_table_lies_inside(files: Warehouse, root: str) -> None:
    table_id = uuid4()
    location = files.location_of(table_id)
    assert location == f"{root}/{table_id}.lance"
    assert files.is_inside(location)
    assert files.is_inside(f"{location}/tree/side")
    assert not files.key_of(location).startswith(("/", "s3:"))


def test_what_is_written_is_read(files: Warehouse, table: str) -> None:
    files.write(f"{table}/_versions/1.manifest", b"first")
    assert files.read(f"{table}/_versions/1.manifest") == b"first"
    assert files.size_of(f"{table}/_versions/1.manifest") == 5
    files.write(f"{table}/_versions/1.manifest", b"the second")
    assert files.read(f"{table}/_versions/1.manifest") == b"the second"
    assert files.list_names(f"{table}/_versions") == ["1.manifest"]


def test_what_is_not_there_has_no_size_and_cannot_be_read(files: Warehouse, table: str) -> None:
    assert files.size_of(f"{table}/_versions/1.manifest") is None
    with pytest.raises(FileNotFoundError):
        files.read(f"{table}/_versions/1.manifest")


def test_names_are_those_directly_in_a_directory(files: Warehouse, table: str) -> None:
    for name in ("b", "a", "deeper/c"):
        files.write(f"{table}/_refs/tags/{name}", b"x")
    files.write(f"{table}/_refs/tags2", b"x")
    assert files.list_names(f"{table}/_refs/tags") == ["a", "b"]
    assert files.list_names(f"{table}/_refs/tags/a") == []
    assert files.list_names(f"{table}/_refs/branches") == []


def test_keys_are_taken_to_the_letter(files: Warehouse, table: str) -> None:
    """Lance writes the reference of the branch `a/b` so."""
    for name in ("a%2Fb.json", "a b?#.json", "größe.json"):
        files.write(f"{table}/_refs/branches/{name}", name.encode())
        assert files.read(f"{table}/_refs/branches/{name}") == name.encode()
    assert len(files.list_names(f"{table}/_refs/branches")) == 3
    assert "a%2Fb.json" in files.list_names(f"{table}/_refs/branches")


def test_a_copy_is_made_once(files: Warehouse, table: str) -> None:
    files.write(f"{table}/a", b"first")
    assert files.copy_if_absent(f"{table}/a", f"{table}/b")
    files.write(f"{table}/a", b"second")
    assert not files.copy_if_absent(f"{table}/a", f"{table}/b")
    assert not files.copy_if_absent(f"{table}/a", f"{table}/b", b"second")
    assert files.read(f"{table}/b") == b"first"
    assert files.list_names(table) == ["a", "b"]


def test_one_of_many_copies_at_once_wins(files: Warehouse, table: str) -> None:
    sources = [f"{table}/source-{number}" for number in range(8)]
    for source in sources:
        files.write(source, source.encode())
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda source: files.copy_if_absent(source, f"{table}/target"), sources))
    won = files.read(f"{table}/target").decode()
    if isinstance(files, LocalTableFiles):
        # The store of the tests looks first and writes then, so that two may be told that they won.
        assert [source for source, is_first in zip(sources, made, strict=True) if is_first] == [won]
    assert won in sources


def test_a_source_has_to_be_there_to_be_copied(files: Warehouse, table: str) -> None:
    files.write(f"{table}/other", b"x")
    with pytest.raises(FileNotFoundError):
        files.copy_if_absent(f"{table}/gone", f"{table}/b")
    assert files.size_of(f"{table}/b") is None


def test_removing_an_object_twice_is_fine(files: Warehouse, table: str) -> None:
    files.write(f"{table}/a", b"x")
    files.remove(f"{table}/a")
    files.remove(f"{table}/a")
    assert files.size_of(f"{table}/a") is None


def test_a_table_is_removed_whole_and_alone(files: Warehouse) -> None:
    gone, stays = (files.location_of(uuid4()) for _ in range(2))
    longer = f"{gone}-2.lance"
    for location in (gone, stays, longer):
        files.write(f"{files.key_of(location)}/data/deep/x", b"x")
    files.remove_table(gone)
    files.remove_table(gone)
    assert files.size_of(f"{files.key_of(gone)}/data/deep/x") is None
    assert files.size_of(f"{files.key_of(stays)}/data/deep/x") == 1
    assert files.size_of(f"{files.key_of(longer)}/data/deep/x") == 1


def test_a_table_in_a_directory_of_the_warehouse_is_removed(files: Warehouse, root: str) -> None:
    location = f"{root}/team/t.lance"
    files.write(f"{files.key_of(location)}/_versions/1.manifest", b"x")
    assert files.is_inside(location)
    files.remove_table(location)
    assert files.list_names(f"{files.key_of(location)}/_versions") == []


def test_only_tables_are_removed(files: Warehouse, root: str) -> None:
    location = files.location_of(uuid4())
    files.write(f"{files.key_of(location)}/data/x", b"x")
    for place in (f"{location}/data", root, f"{root}/", f"{root}/..", "/", "s3://elsewhere/t.lance"):
        with pytest.raises(InvalidInput):
            files.remove_table(place)
    assert files.size_of(f"{files.key_of(location)}/data/x") == 1


@pytest.mark.parametrize("escape", ["../outside", "x/../../outside", "../warehouse-2/x", "../../x"])
def test_nothing_leads_out_of_the_warehouse(files: Warehouse, root: str, table: str, escape: str) -> None:
    files.write(f"{table}/inside", b"x")
    key = f"{table.rpartition('/')[0]}/{escape}".lstrip("/")
    assert not files.is_inside(f"{root}/{escape}")
    for attempt in (
        lambda: files.read(key),
        lambda: files.size_of(key),
        lambda: files.write(key, b"x"),
        lambda: files.remove(key),
        lambda: files.list_names(key),
        lambda: files.copy_if_absent(f"{table}/inside", key),
        lambda: files.copy_if_absent(key, f"{table}/copy"),
        lambda: files.remove_table(f"{root}/{escape}"),
    ):
        with pytest.raises(InvalidInput, match=r"outside the warehouse|not a table"):
            attempt()


def test_other_places_are_not_inside(files: Warehouse, root: str) -> None:
    outside = (
        root,
        f"{root}/",
        f"{root}-2/t.lance",
        "t.lance",
        "",
        "s3://",
        "s3://elsewhere/t.lance",
        "/etc",
    )
    assert [place for place in outside if files.is_inside(place)] == []


def test_a_writable_warehouse_says_nothing_and_keeps_nothing(files: Warehouse, root: str) -> None:
    files.check_writable()
    files.remove_table(f"{root}/t.lance")
