"""The import contracts of pyproject.toml."""

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_imports_keep_their_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(PYPROJECT), no_cache=True)
    assert status == 0, capsys.readouterr().out
