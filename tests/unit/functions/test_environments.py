"""Packages are installed once, and seen by the functions that require them."""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.functions.calls import computed, settings, text_call
from tidemill.catalog.model.functions import Environment
from tidemill.functions.api import FunctionRaised
from tidemill.functions.environments import missing_packages, site_packages
from tidemill.functions.isolation.pool import Isolation

CALL = text_call("import tiny\ndef f(x): return tiny.VERSION", value_type=pa.string())


def wheel(folder: Path, version: str) -> str:
    """A package of one module, as a requirement that needs no index."""
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"tiny @ {path.as_uri()}"


@pytest.mark.parametrize(("isolation", "version"), [(Isolation.TASK, "1.0"), (Isolation.PROCESS, "2.0")])
def test_a_function_finds_the_packages_of_its_environment(
    isolation: Isolation, version: str, tmp_path: Path
) -> None:
    environment = Environment((wheel(tmp_path / "wheels", version),))
    how = settings(isolation, root=str(tmp_path / "installed"), environment=environment)
    assert computed(CALL, [1], how).values.to_pylist() == [version]


def test_a_function_finds_the_packages_it_requires(tmp_path: Path) -> None:
    requirements = ["pyarrow", wheel(tmp_path / "wheels", "3.0")]
    call = text_call(
        "import tiny\ndef f(x): return tiny.VERSION", value_type=pa.string(), requirements=requirements
    )
    how = settings(Isolation.TASK, root=str(tmp_path / "installed"))
    assert computed(call, [1], how).values.to_pylist() == ["3.0"]


def test_the_same_packages_are_installed_once(tmp_path: Path) -> None:
    environment = Environment((wheel(tmp_path / "wheels", "1.0"),))
    root = tmp_path / "installed"
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: site_packages(environment, str(root), builds=True), range(2)))
    assert found[0] == found[1]
    assert len([path for path in root.iterdir() if path.is_dir()]) == 1
    before = (found[0] or root).stat().st_mtime_ns
    assert site_packages(environment, str(root), builds=True) == found[0]
    assert (found[0] or root).stat().st_mtime_ns == before


def test_packages_that_cannot_be_installed_fail_the_function_with_the_reason(tmp_path: Path) -> None:
    environment = Environment((f"tiny @ {(tmp_path / 'tiny-1.0-py3-none-any.whl').as_uri()}",))
    how = settings(root=str(tmp_path / "installed"), environment=environment)
    with pytest.raises(FunctionRaised, match=r"tiny.* cannot be installed: (.|\n)*tiny") as raised:
        computed(CALL, [1], how)
    assert (raised.value.failure.row_id, raised.value.failure.exception) == (None, "EnvironmentFailed")
    assert [path for path in (tmp_path / "installed").iterdir() if path.is_dir()] == []


def test_without_a_folder_nothing_is_installed() -> None:
    with pytest.raises(FunctionRaised, match="no folder to install packages into, and it needs tiny"):
        computed(CALL, [1], settings(environment=Environment(("tiny",))))


def test_an_environment_without_packages_has_no_folder(tmp_path: Path) -> None:
    assert site_packages(Environment(variables={"a": "b"}), str(tmp_path), builds=True) is None


def test_requirements_that_this_python_satisfies_are_not_missing() -> None:
    wanted = ("pyarrow>=1", "numpy>=99", "no-such-package", 'other; python_version < "3"')
    assert missing_packages(wanted) == ("numpy>=99", "no-such-package")
    with pytest.raises(FunctionRaised, match="EnvironmentFailed"):
        missing_packages(("not a requirement!",))
