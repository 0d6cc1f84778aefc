"""Counts attacks by class, for `make security`: how many were tried, got through or ended in a 5xx."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import pytest


@dataclass
class Count:
    tried: int = 0
    got_through: int = 0
    server_errors: int = 0


COUNTS: Final[dict[str, Count]] = {}


def count_attack(kind: str, *, status: int = 0, got_through: bool = False, times: int = 1) -> None:
    """Call it before the assertion: an attack that got through has to be counted too."""
    count = COUNTS.setdefault(kind, Count())
    count.tried += times
    count.got_through += got_through
    # 501 says that an operation is not served, and 503 and 507 what is missing; neither is a crash.
    count.server_errors += status >= 500 and status not in {501, 503, 507}


class AttackReport:
    """Prints a line per class at the end of a run in one process.

    In a module with an `ATTACK_CLASS`, every test is one attack, which got through if the test fails.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        kind = getattr(getattr(item, "module", None), "ATTACK_CLASS", None)
        if kind is not None and report.when == "call" and not report.skipped:
            count_attack(kind, got_through=report.failed)
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not COUNTS:
            return
        terminalreporter.section("attacks")
        terminalreporter.write_line(f"{'class':<58}{'tried':>8}{'got through':>13}{'5xx':>6}")
        for kind, count in sorted(COUNTS.items()):
            terminalreporter.write_line(
                f"{kind:<58}{count.tried:>8}{count.got_through:>13}{count.server_errors:>6}"
            )
