"""`tidemill doctor`: is this machine ready, and if not, what to do."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from tidemill.cli.options import ROOT, JsonOption, RootOption
from tidemill.cli.output import console, print_json
from tidemill.errors import TidemillError
from tidemill.functions.isolation.confinement import find_problem
from tidemill.sdk.connection import find_server

OLDEST_PYTHON: Final = (3, 11)
# What Spark 4.1 runs on.
OLDEST_JAVA, NEWEST_JAVA = 17, 21
SPARK_LINE: Final = "4.1."
SPARK_ADVICE: Final = "run: pip install 'pyspark>=4.1,<4.2'"
LEAST_FREE_BYTES: Final = 1 << 30
ISOLATION_ADVICE: Final = (
    "use Linux 5.14 or newer and allow user namespaces (sysctl user.max_user_namespaces, and on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set "
    "TIDEMILL_FUNCTION_ISOLATION=trusted"
)
JAVA_ADVICE: Final = (
    "install Java 17 to 21 (for instance 'apt install openjdk-17-jre-headless' or 'brew install openjdk@21') "
    "and set JAVA_HOME to it"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; a fault says what to do about it."""

    name: str
    is_ok: bool
    detail: str
    advice: str = ""


def healthy(name: str, detail: str) -> Check:
    return Check(name, is_ok=True, detail=detail)


def fault(name: str, detail: str, advice: str) -> Check:
    return Check(name, is_ok=False, detail=detail, advice=advice)


def check_python() -> Check:
    found = f"{'.'.join(str(part) for part in sys.version_info[:3])} at {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fault("Python", found, "use Python 3.11 or newer")
    return healthy("Python", found)


def check_java() -> Check:
    java = find_java()
    if java is None:
        return fault("Java", "none in JAVA_HOME or on PATH", JAVA_ADVICE)
    major = java_major(java)
    if major is None:
        return fault("Java", f"{java} does not report its version", JAVA_ADVICE)
    if not OLDEST_JAVA <= major <= NEWEST_JAVA:
        return fault("Java", f"{major} at {java}", JAVA_ADVICE)
    return healthy("Java", f"{major} at {java}")


def check_spark(*, is_deep: bool) -> Check:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return fault("Spark", "pyspark is not installed", SPARK_ADVICE)
    if not version.startswith(SPARK_LINE):
        return fault("Spark", f"pyspark {version}", SPARK_ADVICE)
    if not is_deep:
        return healthy("Spark", f"pyspark {version}")
    rows = spark_rows()
    if rows is None:
        return fault(
            "Spark", f"pyspark {version} cannot start a session", f"check Java first, then {SPARK_ADVICE}"
        )
    return healthy("Spark", f"pyspark {version}, a local session counted {rows} rows")


def check_storage(root: Path) -> Check:
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"tidemill")
    except OSError as error:
        detail = f"{root} cannot be written: {error.strerror or error}"
        return fault("Storage", detail, "choose a writable folder with --root")
    free = shutil.disk_usage(root).free
    detail = f"{root} is writable, {free / (1 << 30):.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return fault("Storage", detail, "free at least 1 GiB, or choose another folder with --root")
    return healthy("Storage", detail)


def check_database(root: Path) -> Check:
    try:
        settings = _part("tidemill.server.settings").load_settings(root=root)
        store = _part("tidemill.store.engine").open_store(settings.database)
    except (TidemillError, OSError, ValueError) as error:
        return fault("Database", f"cannot be opened: {error}", "check the database setting and the root")
    try:
        store.check_readable()
    except TidemillError as error:
        return fault("Database", f"does not respond: {error}", "start it, or check its address")
    finally:
        store.close()
    return healthy("Database", "opens and responds")


def check_isolation() -> Check:
    """Not a fault as such: one user alone does not need a sandbox, and a server with clients refuses."""
    problem = find_problem()
    if problem is None:
        return healthy("Functions", "sandbox: namespaces, another user, limits, no files, no network")
    detail = f"no sandbox, a server with clients refuses functions: {problem}"
    return Check("Functions", is_ok=True, detail=detail, advice=ISOLATION_ADVICE)


def check_server(root: Path) -> Check:
    url = find_server(root)
    start = f"tidemill serve --root {root}"
    if url is not None:
        return healthy("Server", f"responds at {url}")
    if (root / "server.json").exists():
        return fault("Server", f"the one recorded in {root} does not respond", f"start it again: {start}")
    return healthy("Server", f"none runs under {root} (start one with: {start})")


def find_java() -> str | None:
    """The Java that Spark would use: JAVA_HOME, PATH, then one inside this environment."""
    configured = os.environ.get("JAVA_HOME")
    if configured:
        return _java_of(Path(configured))
    return shutil.which("java") or _java_of(Path(sys.prefix) / "java")


def _java_of(home: Path) -> str | None:
    java = home / "bin" / "java"
    return str(java) if java.exists() else None


def java_major(java: str) -> int | None:
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_java_version(process.stderr + process.stdout)


def read_java_version(text: str) -> int | None:
    """The major version in `openjdk version "17.0.9"`; 8 was written as 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def spark_rows() -> int | None:
    """Starts Spark in a process of its own, so that a broken one cannot take this one along."""
    code = (
        "from pyspark.sql import SparkSession as S;"
        "s = S.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate();"
        "print('rows', s.range(3).count()); s.stop()"
    )
    try:
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r"^rows (\d+)$", process.stdout, re.MULTILINE)
    return int(found.group(1)) if found else None


def _part(name: str) -> Any:
    """The database takes a while to import; only this check needs it."""
    return importlib.import_module(name)


def doctor(
    *,
    root: RootOption = ROOT,
    deep: Annotated[bool, typer.Option("--deep", help="Also start a small Spark session.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Spark, isolation of functions, storage, database and server."""
    checks = run_checks(root.absolute(), is_deep=deep)
    if as_json:
        print_json(
            {"ok": all(check.is_ok for check in checks), "checks": [asdict(check) for check in checks]}
        )
    else:
        for check in checks:
            _print(check)
    if not all(check.is_ok for check in checks):
        raise typer.Exit(1)


def run_checks(root: Path, *, is_deep: bool) -> list[Check]:
    storage = check_storage(root)
    checks = [check_python(), check_java(), check_spark(is_deep=is_deep), check_isolation(), storage]
    # Without a folder to be in, the database would only repeat the same fault.
    return [*checks, *([check_database(root)] if storage.is_ok else []), check_server(root)]


def _print(check: Check) -> None:
    mark = "[green]ok   [/]" if check.is_ok else "[red]fault[/]"
    console().print(f"{mark} {check.name:<9} {escape(check.detail)}", soft_wrap=True)
    if check.advice:
        console().print(f"      {'':<9} [yellow]{escape(check.advice)}[/]", soft_wrap=True)
