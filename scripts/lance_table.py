"""Writes the table of operations, clients and tests into docs/protocols/lance.md, from the tests' markers."""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))

from tests.operations import CLIENTS, OPERATIONS, driven_by  # noqa: E402 - the folder has to be known first

FOLDERS: Final = ("protocol", "interop")
PAGE: Final = FOLDER / "docs" / "protocols" / "lance.md"
BEGIN: Final = "<!-- tests of every operation: written by scripts/lance_table.py -->"
END: Final = "<!-- end of the tests -->"
ADVICE: Final = "run 'make docs' and commit the page"

Tests = Mapping[tuple[str, str], Iterable[str]]


class Recorder:
    """A pytest plugin that notes the markers of what was collected."""

    def __init__(self) -> None:
        self.tests: dict[tuple[str, str], set[str]] = defaultdict(set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for pair in driven_by(item):
                # The cases of one parametrised test are one test.
                self.tests[pair].add(item.nodeid.partition("[")[0])


def collect() -> Tests:
    recorder = Recorder()
    quiet = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", ""]
    folders = [str(FOLDER / "tests" / name) for name in FOLDERS]
    with redirect_stdout(StringIO()) as said:
        status = pytest.main([*quiet, "--rootdir", str(FOLDER), *folders], plugins=[recorder])
    if status != pytest.ExitCode.OK:
        sys.exit(f"the tests cannot be collected: {said.getvalue()}")
    return recorder.tests


def untested(tests: Tests) -> list[str]:
    return sorted(set(OPERATIONS) - {operation for operation, _ in tests})


def rendered(tests: Tests) -> str:
    clients = [client for client in CLIENTS if any(client == named for _, named in tests)]
    head = ["operation", *(CLIENTS[client] for client in clients)]
    rows = [
        [operation, *(_count(tests, operation, client) for client in clients)] for operation in OPERATIONS
    ]
    lines = [_row(head), _row(["---", *(["--:"] * len(clients))]), *map(_row, rows)]
    return "\n".join(
        [*lines, "", "<details><summary>The tests by name</summary>", "", *_names(tests), "</details>"]
    )


def _count(tests: Tests, operation: str, client: str) -> str:
    return str(len(list(tests.get((operation, client), ()))) or "")


def _row(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _names(tests: Tests) -> list[str]:
    lines = []
    for operation in OPERATIONS:
        lines += [f"**{operation}**", ""]
        for client in CLIENTS:
            lines += [
                f"- {CLIENTS[client]}: [`{name.split('::')[-1]}`](../../{name.split('::')[0]})"
                for name in sorted(tests.get((operation, client), ()))
            ]
        lines.append("")
    return lines


def updated(page: str, table: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE.name} lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the page is stale")
    only_check = parser.parse_args().check
    tests = collect()
    page = PAGE.read_text()
    wanted = updated(page, rendered(tests))
    if not only_check:
        PAGE.write_text(wanted)
    missing = untested(tests)
    if missing:
        sys.exit(f"operations without a test: {', '.join(missing)}")
    if only_check and wanted != page:
        sys.exit(f"{PAGE.name} does not show the tests as they are: {ADVICE}")


if __name__ == "__main__":
    main()
