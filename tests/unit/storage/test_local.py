"""Nothing outside the warehouse is ever touched."""

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


def test_a_copy_is_made_once(files: LocalTableFiles, tmp_path: Path) -> None:
    source, target = tmp_path / "warehouse" / "a", tmp_path / "warehouse" / "b"
    source.write_bytes(b"first")
    files.copy_if_absent(key(source), key(target))
    source.write_bytes(b"second")
    files.copy_if_absent(key(source), key(target))
    assert target.read_bytes() == b"first"
    assert sorted(path.name for path in (tmp_path / "warehouse").iterdir()) == ["a", "b"]


def test_a_missing_source_is_fine_only_if_the_target_is_there(files: LocalTableFiles, tmp_path: Path) -> None:
    target = tmp_path / "warehouse" / "b"
    with pytest.raises(FileNotFoundError):
        files.copy_if_absent(key(tmp_path / "warehouse" / "gone"), key(target))
    target.write_bytes(b"there")
    files.copy_if_absent(key(tmp_path / "warehouse" / "gone"), key(target))


@pytest.mark.parametrize("escape", ["../outside", "x/../../outside", "link/outside"])
def test_keys_cannot_lead_out_of_the_warehouse(files: LocalTableFiles, tmp_path: Path, escape: str) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    (tmp_path / "warehouse" / "link").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match="outside the warehouse"):
        files.read_tail(f"{key(tmp_path / 'warehouse')}/{escape}", 4)


def test_only_tables_are_removed(files: LocalTableFiles, tmp_path: Path) -> None:
    location = files.location_of(uuid4())
    (Path(location) / "data").mkdir(parents=True)
    with pytest.raises(InvalidInput):
        files.remove_table(f"{location}/data")
    with pytest.raises(InvalidInput):
        files.remove_table(str(tmp_path))
    files.remove_table(location)
    assert not Path(location).exists()
    files.remove_table(location)
