"""What is particular to files in a local directory."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tidemill.errors import InvalidInput
from tidemill.storage.local import LocalTableFiles


@pytest.fixture
def files(tmp_path: Path) -> LocalTableFiles:
    return LocalTableFiles(tmp_path / "warehouse")


def key(path: Path) -> str:
    return str(path).removeprefix("/")


def test_links_do_not_lead_out_of_the_warehouse(files: LocalTableFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    (tmp_path / "warehouse" / "link").symlink_to(tmp_path)
    assert not files.is_inside(str(tmp_path / "warehouse" / "link" / "outside"))
    with pytest.raises(InvalidInput, match="outside the warehouse"):
        files.read(f"{key(tmp_path / 'warehouse')}/link/outside")


def test_files_being_written_are_not_listed(files: LocalTableFiles, tmp_path: Path) -> None:
    directory = tmp_path / "warehouse" / "t.lance"
    files.write(f"{key(directory)}/a", b"x")
    (directory / f".b.{uuid4()}.staging").write_bytes(b"half")
    assert files.list_names(key(directory)) == ["a"]


def test_a_location_may_be_a_file_uri(files: LocalTableFiles, tmp_path: Path) -> None:
    assert files.is_inside((tmp_path / "warehouse" / "my table.lance").as_uri())
    assert not files.is_inside(f"file://{tmp_path}/warehouse/%2e%2e/t.lance")


def test_nothing_is_vended(files: LocalTableFiles) -> None:
    assert files.vend(files.location_of(uuid4())) == {}
