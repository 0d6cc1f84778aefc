"""Installs the packages that functions require, once per machine and set of packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Final
from uuid import uuid4

import uv
from packaging.requirements import InvalidRequirement, Requirement

from tidemill.catalog.model.functions import Environment
from tidemill.functions.failures import ENVIRONMENT_FAILED, FunctionRaised, error_without_row, synthetic_error

STDERR_LINES: Final = 20
STAGING_PREFIX: Final = ".staged-"
# Variables that configure access to a package index; installers see no other of the worker's.
INSTALLER_VARIABLES: Final = (
    "UV_",
    "PIP_",
    "SSL_CERT_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)
PASSED_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")


def site_packages(environment: Environment, root: str, *, builds: bool) -> Path | None:
    """Returns the folder with the packages and installs them if needed; raises FunctionRaised.

    Without `builds`, only wheels are installed: building anything else would run its author's code here.
    """
    if not environment.packages:
        return None
    if not root:
        packages = ", ".join(environment.packages)
        raise _environment_error(f"there is no folder to install packages into, and it needs {packages}")
    # A package may be built for one version of Python.
    folder = Path(root) / f"{environment.packages_digest}-{sys.implementation.cache_tag}"
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_suffix(".lock")):
                if not folder.exists():
                    _install(environment.packages, folder, builds=builds)
    except OSError as error:
        raise _environment_error(f"packages cannot be installed into {root}: {error}") from error
    return folder


@contextmanager
def activated(environment: Environment, root: str) -> Iterator[None]:
    """Adds the packages and variables to this process, for functions that cannot run in a child.

    Modules imported meanwhile stay imported.
    """
    packages = site_packages(environment, root, builds=True)
    variables = os.environ  # noqa: TID251  # the variables of the function, while it runs in this process
    before = {name: variables.get(name) for name in environment.variables}
    path = list(sys.path)
    variables.update(environment.variables)
    sys.path[:0] = [] if packages is None else [str(packages)]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, value in before.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value


def missing_packages(requirements: Sequence[str]) -> tuple[str, ...]:
    """The requirements that this Python does not satisfy; raises FunctionRaised if one is invalid."""
    try:
        return tuple(text for text in requirements if not _is_satisfied(Requirement(text)))
    except InvalidRequirement as error:
        raise _environment_error(f"{', '.join(requirements)}: {error}") from error


def _is_satisfied(wanted: Requirement) -> bool:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.url is None and not wanted.extras and wanted.specifier.contains(found, prereleases=True)


def _install(packages: Sequence[str], folder: Path, *, builds: bool) -> None:
    """Installs into a staging folder and renames it, so that `folder` is always complete."""
    staged = folder.parent / f"{STAGING_PREFIX}{uuid4().hex}"
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-progress"]
    command += [] if builds else ["--only-binary", ":all:"]
    command += ["--python", sys.executable, "--target", str(staged), "--", *packages]
    try:
        ended = subprocess.run(
            command,
            env=_installer_variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != 0:
            raise _environment_error(
                f"{', '.join(packages)} cannot be installed: {_last_lines(ended.stderr)}"
            )
        staged.mkdir(exist_ok=True)
        staged.rename(folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _installer_variables() -> Mapping[str, str]:
    """Building a package runs its author's code, which must not see the worker's credentials."""
    found = os.environ  # noqa: TID251  # proxies and indexes are configured for pip and uv, not for us
    return {
        name: value
        for name, value in found.items()
        if name in PASSED_VARIABLES or name.upper().startswith(INSTALLER_VARIABLES)
    }


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-STDERR_LINES:])


def _environment_error(text: str) -> FunctionRaised:
    return error_without_row(synthetic_error(ENVIRONMENT_FAILED, text))
