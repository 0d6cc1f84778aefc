"""Commits that point where they must not: refused, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.protocol.wire import TableOnWire, check_refusal, commit_body, final_name, key_of

PathMaker = Callable[[TableOnWire, Path], str]


@pytest.fixture
def staged(still: TableOnWire) -> Iterator[Path]:
    """A manifest that could be committed as version 2."""
    path = still.stage(2)
    yield path
    path.unlink()


def nested(_: TableOnWire, staged: Path) -> str:
    return key_of(staged.parent / "x" / ".." / staged.name)


def above(table: TableOnWire, staged: Path) -> str:
    return key_of(table.directory / "_versions" / ".." / ".." / staged.name)


def absolute(_: TableOnWire, staged: Path) -> str:
    return str(staged)


def uri(_: TableOnWire, staged: Path) -> str:
    return f"file://{staged}"


def relative(_: TableOnWire, staged: Path) -> str:
    return f"_versions/{staged.name}"


def doubled_slash(_: TableOnWire, staged: Path) -> str:
    return key_of(staged.parent) + "//" + staged.name


def beside(table: TableOnWire, staged: Path) -> str:
    return key_of(table.directory / "data" / staged.name)


def system_file(_: TableOnWire, __: Path) -> str:
    return "etc/passwd"


def final(_: TableOnWire, staged: Path) -> str:
    return key_of(staged.parent / final_name(1))


def without_suffix(_: TableOnWire, staged: Path) -> str:
    return key_of(staged).rpartition(".manifest-")[0]


def with_a_tail(_: TableOnWire, staged: Path) -> str:
    return key_of(staged) + ".txt"


def with_a_line_break(_: TableOnWire, staged: Path) -> str:
    return key_of(staged) + "\n"


def missing(_: TableOnWire, staged: Path) -> str:
    return key_of(staged.parent / f"{final_name(2)}-{uuid4()}")


def nothing(_: TableOnWire, __: Path) -> str:
    return ""


PATHS: tuple[PathMaker, ...] = (
    nested,
    above,
    absolute,
    uri,
    relative,
    doubled_slash,
    beside,
    system_file,
    final,
    without_suffix,
    with_a_tail,
    with_a_line_break,
    missing,
    nothing,
)


@pytest.mark.parametrize("path_of", PATHS)
def test_a_path_that_is_no_staged_manifest_of_the_table_is_refused(
    staged: Path, unchanged: TableOnWire, path_of: PathMaker
) -> None:
    body = commit_body(2, staged, manifest_path=path_of(unchanged, staged))
    check_refusal(unchanged.post("version/create", body), 400, 13, "manifest_path")


def test_another_tables_manifest_is_refused(table: TableOnWire, unchanged: TableOnWire) -> None:
    foreign = table.stage(2)
    before = table.state()
    check_refusal(unchanged.post("version/create", commit_body(2, foreign)), 400, 13, "manifest_path")
    assert table.state() == before


def test_a_link_out_of_the_warehouse_is_refused(table: TableOnWire, tmp_path: Path) -> None:
    outside = tmp_path / "outside.manifest"
    outside.write_bytes(table.manifests()[final_name(1)])
    link = table.directory / "_versions" / f"{final_name(2)}-{uuid4()}"
    link.symlink_to(outside)
    before = table.state()
    check_refusal(table.post("version/create", commit_body(2, link)), 400, 13)
    assert table.state() == before
    assert outside.exists()


def test_a_link_to_another_table_is_refused(table: TableOnWire, unchanged: TableOnWire) -> None:
    link = table.directory / "_versions" / f"{final_name(2)}-{uuid4()}"
    link.symlink_to(unchanged.directory / "_versions" / final_name(1))
    before = table.state()
    check_refusal(table.post("version/create", commit_body(2, link)), 400, 13)
    assert table.state() == before


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_size_that_is_not_the_objects_is_refused(
    staged: Path, unchanged: TableOnWire, difference: int
) -> None:
    body = commit_body(2, staged, manifest_size=staged.stat().st_size + difference)
    check_refusal(unchanged.post("version/create", body), 400, 13, "manifest_size")


@pytest.mark.parametrize(
    "content", [b"", b"LANC", b"no manifest at all", b"PAR1" * 100], ids=["empty", "magic", "text", "parquet"]
)
def test_a_file_that_is_no_manifest_is_refused(still: TableOnWire, staged: Path, content: bytes) -> None:
    staged.write_bytes(content)
    before = still.state()
    check_refusal(still.post("version/create", commit_body(2, staged)), 400, 13, "manifest_path")
    assert still.state() == before


@pytest.mark.parametrize("version", [3, 4, 1000, 2**63 - 1])
def test_a_version_after_a_gap_is_refused(staged: Path, unchanged: TableOnWire, version: int) -> None:
    check_refusal(unchanged.post("version/create", commit_body(version, staged)), 400, 13, "version")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0),
        ("version", -1),
        ("version", "2"),
        ("version", 2.0),
        ("version", True),
        ("version", None),
        ("version", 2**63),
        ("manifest_path", None),
        ("manifest_path", ["a"]),
        ("manifest_size", "12"),
        ("manifest_size", -1),
        ("naming_scheme", "V3"),
        ("e_tag", 5),
        ("metadata", ["key"]),
        ("branch", 7),
        ("id", ["somewhere", "else"]),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_field(
    staged: Path, unchanged: TableOnWire, field: str, value: Any
) -> None:
    answer = unchanged.post("version/create", commit_body(2, staged, **{field: value}))
    check_refusal(answer, 400, 13, field)


def test_another_branch_is_not_the_main_one(staged: Path, unchanged: TableOnWire) -> None:
    check_refusal(
        unchanged.post("version/create", commit_body(2, staged, branch="dev")), 400, 13, "manifest_path"
    )


def test_a_version_of_a_missing_table_is_refused(staged: Path, unchanged: TableOnWire) -> None:
    nowhere = TableOnWire(unchanged.http, unchanged.namespace, "nowhere")
    check_refusal(nowhere.post("version/create", commit_body(2, staged)), 404, 4)


@pytest.mark.parametrize("token", ["abc", "-1", "1.5", "9" * 30, "٣"])
def test_a_token_of_no_version_listing_is_refused(still: TableOnWire, token: str) -> None:
    answer = still.post("version/list", params={"page_token": token})
    check_refusal(answer, 400, 13, "page_token")
