"""The doctor's checks, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.cli import doctor
from tidemill.cli.doctor import (
    check_isolation,
    check_java,
    check_python,
    check_server,
    check_storage,
    read_java_version,
)

OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n"


def test_this_python_will_do() -> None:
    assert check_python().is_ok


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_read(said: str, major: int | None) -> None:
    assert read_java_version(said) == major


def test_an_old_java_is_a_fault_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(OLD_JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = check_java()
    assert not check.is_ok
    assert check.detail.startswith("11 at")
    assert "install Java 17 to 21" in check.advice


def test_no_java_is_a_fault_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "install Java" in check_java().advice


def test_a_folder_is_made_and_written(tmp_path: Path) -> None:
    assert check_storage(tmp_path / "new").is_ok
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_that_cannot_be_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = check_storage(tmp_path / "file" / "root")
    assert not check.is_ok
    assert "--root" in check.advice


def test_a_full_disk_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 1 << 80)
    assert "free at least" in check_storage(tmp_path).advice


def test_no_server_is_no_fault_but_a_dead_one_is(tmp_path: Path) -> None:
    assert check_server(tmp_path).is_ok
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:9", "pid": 1}')
    assert not check_server(tmp_path).is_ok


def test_it_says_whether_functions_can_be_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.cli.doctor.find_problem", lambda: None)
    assert "sandbox: namespaces" in check_isolation().detail
    monkeypatch.setattr("tidemill.cli.doctor.find_problem", lambda: "unshare: Operation not permitted")
    without = check_isolation()
    assert "refuses functions: unshare" in without.detail
    assert "TIDEMILL_FUNCTION_ISOLATION=trusted" in without.advice
