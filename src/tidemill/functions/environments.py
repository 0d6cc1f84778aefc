"""Packages that functions ask for: installed once, below a folder of this machine."""

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

from tidemill.catalog.model.environments import Environment
from tidemill.functions.failures import ENVIRONMENT_FAILED, FunctionRaised, in_words, without_row

TOLD_LINES: Final = 20
STAGED: Final = ".staged-"
# How to reach a package index; anything else in the worker's environment is none of a package's business.
INSTALLER_VARIABLES: Final = (
    "UV_",
    "PIP_",
    "SSL_CERT_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)
USUAL_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")


def site_packages(environment: Environment, root: str) -> Path | None:
    """The folder with the environment's packages, installed if they are not; raises FunctionRaised."""
    if not environment.packages:
        return None
    if not root:
        packages = ", ".join(environment.packages)
        raise _failed(f"there is no folder to install packages into, and it needs {packages}")
    # A package may hold code for one Python only.
    folder = Path(root) / f"{environment.packages_digest}-{sys.implementation.cache_tag}"
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_suffix(".lock")):
                if not folder.exists():
                    _install(environment.packages, folder)
    except OSError as error:
        raise _failed(f"packages cannot be installed into {root}: {error}") from error
    return folder


@contextmanager
def activated(environment: Environment, root: str) -> Iterator[None]:
    """This process with the environment's packages and variables, for what cannot have one of its own.

    What is imported meanwhile stays imported.
    """
    packages = site_packages(environment, root)
    variables = os.environ  # noqa: TID251  # those of the function, for as long as it is called here
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
    """Those that this Python does not have, or has in another version; raises FunctionRaised."""
    try:
        return tuple(text for text in requirements if not _is_satisfied(Requirement(text)))
    except InvalidRequirement as error:
        raise _failed(f"{', '.join(requirements)}: {error}") from error


def _is_satisfied(wanted: Requirement) -> bool:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.url is None and not wanted.extras and wanted.specifier.contains(found, prereleases=True)


def _install(packages: Sequence[str], folder: Path) -> None:
    """The folder appears when everything is in it."""
    staged = folder.parent / f"{STAGED}{uuid4().hex}"
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-progress"]
    command += ["--python", sys.executable, "--target", str(staged), "--", *packages]
    try:
        ended = subprocess.run(
            command, env=_variables(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise _failed(f"{', '.join(packages)} cannot be installed: {_last_lines(ended.stderr)}")
        staged.mkdir(exist_ok=True)
        staged.rename(folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _variables() -> Mapping[str, str]:
    """Building a package runs code of its author: it gets no credentials of the worker."""
    found = os.environ  # noqa: TID251  # proxies and indexes are configured for pip and uv, not for us
    return {
        name: value
        for name, value in found.items()
        if name in USUAL_VARIABLES or name.upper().startswith(INSTALLER_VARIABLES)
    }


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TOLD_LINES:])


def _failed(text: str) -> FunctionRaised:
    return without_row(in_words(ENVIRONMENT_FAILED, text))
