"""The page of requests that compute has every field and status of its operations, and tests that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "protocols" / "lance-compute.md").read_text()
TABLES: Final[dict[str, Any]] = {
    name: json.loads((ROOT / "tests" / "data" / f"{name}_operations.json").read_text())
    for name in ("lance", "iceberg")
}
OPERATIONS: Final = {
    "CreateMaterializedView": "lance",
    "RefreshMaterializedView": "lance",
    "AlterTableBackfillColumns": "lance",
    "CreateTableVersion": "lance",
    "replaceView": "iceberg",
}
SCHEMAS: Final = [
    *(
        schema
        for operation in OPERATIONS
        if operation != "replaceView"
        for schema in (f"{operation}Request", f"{operation}Response")
    ),
    "MaterializedViewUdtfEntry",
    "CommitViewRequest",
]
TEST: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")


def section(operation: str) -> str:
    return PAGE.split(f"\n## {operation}\n")[1].split("\n## ")[0]


def rows(text: str, head: str) -> dict[str, str]:
    """What a table says about each name in its first column."""
    lines = text.split(f"\n| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    cells = (line.removeprefix("| ").partition(" | ") for line in lines)
    return {name.strip("`"): rest for name, _, rest in cells}


def every_row() -> Iterator[tuple[str, str]]:
    for schema in SCHEMAS:
        yield from ((f"{schema}.{name}", rest) for name, rest in rows(PAGE, schema).items())
    for operation in OPERATIONS:
        found = rows(section(operation), "status").items()
        yield from ((f"{operation} {status}", rest) for status, rest in found)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_field_has_a_row(schema: str) -> None:
    declared = next(table["schemas"][schema] for table in TABLES.values() if schema in table["schemas"])
    assert rows(PAGE, schema).keys() == {name.removesuffix("?") for name in declared}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_status_has_a_row(operation: str) -> None:
    declared = TABLES[OPERATIONS[operation]]["operations"][operation]["answers"]
    statuses = {status for listed in declared for status in listed.split()}
    assert statuses <= rows(section(operation), "status").keys()


@pytest.mark.parametrize(("row", "text"), list(every_row()))
def test_every_row_names_tests(row: str, text: str) -> None:
    assert TEST.search(text) is not None


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE))))
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    file = ROOT / "tests" / path
    assert file.exists()
    assert re.search(rf"^def {name}\(", file.read_text(), re.MULTILINE) is not None
