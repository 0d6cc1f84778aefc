"""Runs Iceberg's REST compatibility kit against a server of this folder: `make rck`."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.conftest import start_server
from tests.interop.iceberg.maven import JarsMissing, java, java_environment, kit_jars
from tests.interop.iceberg.reference_server import running_reference_server

PACKAGE: Final = "org.apache.iceberg.rest"
SUITES: Final = ("RESTCompatibilityKitCatalogTests", "RESTCompatibilityKitViewCatalogTests")
LAUNCHER: Final = "org.junit.platform.console.ConsoleLauncher"
REPORT: Final = "TEST-junit-jupiter.xml"
WAREHOUSE: Final = "tidemill"
TIMEOUT_SECONDS: Final = 1200
LINE_LENGTH: Final = 240
# The reference makes namespaces along with tables, and cannot tell a dot in a name from one between names.
REFERENCE_SWITCHES: Final = {"rck.local": "false", "rck.supports-variant": "true"}
OUR_SWITCHES: Final = {
    **REFERENCE_SWITCHES,
    "rck.requires-namespace-create": "true",
    "rck.supports-names-with-dot": "true",
}
NOT_PASSED: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}
ABORTED: Final = re.compile(
    r"^org\.opentest4j\.TestAbortedException: assumption was not met due to:\s*(?:\[(.+?)\])?"
)


@dataclass(frozen=True)
class Case:
    """What became of one method of the kit."""

    suite: str
    method: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Target:
    """The server under test; its warehouse is one that the kit can read the files of."""

    uri: str
    warehouse: str
    switches: dict[str, str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", action="store_true", help="against Iceberg's own server instead")
    parser.add_argument("--only", metavar="METHOD", action="append", default=[], help="may be repeated")
    parser.add_argument("--verbose", action="store_true", help="the whole reason of what does not pass")
    parser.add_argument(
        "--lines", action="store_true", help="a line of JSON for each suite, as `make clients` reads"
    )
    given = parser.parse_args(arguments)
    try:
        cases = [case for suite in SUITES for case in _on_a_server(suite, given.only, given.reference)]
    except JarsMissing as missing:
        print(f"The kit cannot be run here: {missing}")
        return 2
    if not cases:
        print(f"The kit has no method called {' or '.join(given.only)}")
        return 2
    _print_lines(cases) if given.lines else _print_outcomes(cases, verbose=given.verbose)
    return 1 if any(case.outcome == "failed" for case in cases) else 0


def _on_a_server(suite: str, only: Sequence[str], reference: bool) -> list[Case]:
    # Each suite wants to find a catalog without the namespaces that the other leaves behind.
    start = _reference if reference else _ours
    with tempfile.TemporaryDirectory(prefix="tidemill-rck-") as folder, start(Path(folder)) as target:
        return run(suite, target, Path(folder), only)


@contextmanager
def _ours(folder: Path) -> Iterator[Target]:
    # The kit makes tables in folders of its own choosing.
    allowed = json.dumps([tempfile.gettempdir()])
    server = start_server(folder / "lake", "--no-worker", TIDEMILL_ALLOWED_LOCATIONS=allowed)
    try:
        yield Target(f"{server.url}/iceberg", WAREHOUSE, OUR_SWITCHES)
    finally:
        server.stop()


@contextmanager
def _reference(folder: Path) -> Iterator[Target]:
    with running_reference_server(folder / "reference") as server:
        yield Target(server.url, str(server.warehouse), REFERENCE_SWITCHES)


def run(suite: str, target: Target, folder: Path, only: Sequence[str]) -> list[Case]:
    """Every method of the suite, or those named; raises JarsMissing."""
    properties = {"uri": target.uri, "warehouse": target.warehouse, **target.switches}
    command = [
        java(),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{kit_jars()}/*", LAUNCHER, "execute", "--disable-banner", "--details=none"),
        f"--select-class={PACKAGE}.{suite}",
        *(f"--include-methodname=.*#{re.escape(method)}" for method in only),
        f"--reports-dir={folder}",
    ]
    with (folder / "kit.log").open("wb") as log:
        subprocess.run(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            # The kit takes the name of the warehouse for a folder and writes there.
            cwd=folder,
            env=java_environment(),
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    report = folder / REPORT
    if not report.exists():
        raise SystemExit(f"The kit did not run:\n{(folder / 'kit.log').read_text(errors='replace')[-4000:]}")
    return sorted(_cases(report), key=lambda case: (case.outcome, case.method))


def _cases(report: Path) -> Iterator[Case]:
    for found in ElementTree.parse(report).getroot().iter("testcase"):
        suite = found.attrib["classname"].removeprefix(f"{PACKAGE}.")
        method = found.attrib["name"].removesuffix("()")
        fault = next((part for part in found if part.tag in NOT_PASSED), None)
        if fault is None:
            yield Case(suite, method, "passed")
        else:
            reason = fault.get("message") or fault.text or ""
            yield Case(suite, method, NOT_PASSED[fault.tag], _said(reason.strip()))


def _said(reason: str) -> str:
    """The reason without the words that every skipped method has."""
    if (aborted := ABORTED.match(reason)) is None:
        return reason
    return aborted[1] or "not among what the kit was told this server supports"


def _print_outcomes(cases: Sequence[Case], *, verbose: bool) -> None:
    for suite in SUITES:
        own = [case for case in cases if case.suite == suite]
        counts = {name: sum(case.outcome == name for case in own) for name in ("passed", "failed", "skipped")}
        print(f"{suite}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        for case in own:
            if case.outcome != "passed":
                reason = case.reason if verbose else " ".join(case.reason.split())[:LINE_LENGTH]
                print(f"  {case.outcome} {case.method}: {reason}")


def _print_lines(cases: Sequence[Case]) -> None:
    for suite in SUITES:
        failed = [
            f"{case.method}: {case.reason}"
            for case in cases
            if case.suite == suite and case.outcome == "failed"
        ]
        has_passed = not failed and any(case.suite == suite and case.outcome == "passed" for case in cases)
        line = {"operation": suite, "outcome": "pass" if has_passed else "fail", "detail": "; ".join(failed)}
        print(json.dumps(line))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
