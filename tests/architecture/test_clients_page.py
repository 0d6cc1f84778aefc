"""The matrix of foreign clients and the page that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.clients import matrix
from tests.clients.client import Client, KnownFault

ROOT: Final = Path(__file__).parents[2]
FAULT: Final = KnownFault("scan", "the client", "it cannot", "https://example.org/1")
CLIENT: Final = Client("c", "1", "lance", lambda folder: [], (FAULT,))
PASSES: Final = '{"operation": "create", "outcome": "pass"}\n'
FAILS: Final = '{"operation": "scan", "outcome": "fail", "detail": "no"}\n'


def test_the_page_shows_the_matrix() -> None:
    assert matrix.PAGE.read_text() == matrix.rendered(matrix.read_matrix()), "run 'make clients'"


def test_the_page_can_be_found() -> None:
    assert "(docs/clients.md)" in (ROOT / "README.md").read_text()
    assert "`make clients`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_no_new_failure_is_kept() -> None:
    kept = matrix.read_matrix()
    assert [
        f"{name}: {operation}"
        for name, row in kept.items()
        for operation, verdict in row.get("operations", {}).items()
        if "new" in verdict
    ] == []


def test_a_known_fault_is_no_problem() -> None:
    outcome = matrix.judged(CLIENT, f"starting\n{PASSES}{FAILS}", None, ["create"])
    assert outcome.problems == []
    expected = {"whose": "the client", "why": "it cannot", "upstream": "https://example.org/1"}
    assert outcome.operations == {"create": "pass", "scan": expected}


@pytest.mark.parametrize(
    ("output", "ended", "problem"),
    [
        (PASSES.replace("create", "scan"), None, "scan: passes now, but is listed as a fault of the client"),
        (FAILS + FAILS.replace("scan", "drop"), None, "drop: no"),
        (FAILS + FAILS.replace("scan", "drop") + PASSES.replace("create", "drop"), None, "drop: no"),
        (FAILS, "the scenario ended with code 1", "the scenario ended with code 1"),
        (FAILS, None, "create: was not tried"),
        (PASSES, None, "scan: was not tried"),
        ("{broken\n", None, "the scenario reported no operation"),
    ],
    ids=str,
)
def test_anything_else_is_a_problem(output: str, ended: str | None, problem: str) -> None:
    assert problem in matrix.judged(CLIENT, output, ended, ["create"]).problems


def test_a_client_that_cannot_be_run_keeps_what_was_found_before() -> None:
    before = matrix.merged({}, [matrix.judged(CLIENT, PASSES + FAILS, None, [])])
    assert matrix.merged(before, [matrix.Outcome(CLIENT, not_run="no network")]) == before
    alone = matrix.merged({}, [matrix.Outcome(CLIENT, not_run="no network")])
    assert "not run: no network" in matrix.rendered(alone)
