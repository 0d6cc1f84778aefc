"""Says in the summary of a run how many answers were checked, and whether the full documents were missing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.specification.answers import CHECKED
from tests.specification.documents import FOLDER, missing_documents


class SpecificationReport:
    """A pytest plugin. With xdist the workers do the checks and the controller reports them."""

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["checked_answers"] = dict(CHECKED)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        CHECKED.update(getattr(node, "workeroutput", {}).get("checked_answers", {}))

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        missing = missing_documents()
        if not CHECKED and not missing:
            return
        terminalreporter.section("specifications")
        for name, count in sorted(CHECKED.items()):
            terminalreporter.line(f"{count:,} answers checked against our table of {name}")
        if missing:
            terminalreporter.line(
                f"MISSING: {', '.join(missing)} in {FOLDER}. Answers are checked against the tables in"
                " tests/data alone, and the tables are not compared with the documents.",
                yellow=True,
            )
