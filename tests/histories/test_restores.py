"""Jobs that read a version in which rows had left their fragment, and a restore that has put them back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.engine import Engine, column_function, succeeded
from tidemill.catalog.model.functions import FunctionKind


def doubled(x: int) -> int:
    return 2 * x


def test_a_pinned_backfill_keeps_values_of_rows_that_a_restore_has_put_back(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    table = engine.create_table("t", pa.table({"id": [1, 2], "x": [1, 2]}))
    engine.declare(table, "y", column_function(doubled, pa.int64(), "x", kind=FunctionKind.SCALAR), "x")
    succeeded(engine.backfill(table, "y", where="id = 2"))
    before = engine.open(table).version
    # The row moves to a fragment of its own.
    engine.open(table).update({"x": "5"}, where="id = 2")
    moved = engine.open(table).version
    engine.open(table).checkout_version(before).restore()
    succeeded(engine.backfill(table, "y", read_version=moved))
    rows = {row["id"]: row["y"] for row in engine.rows(table).to_pylist()}
    assert rows[2] in (4, 10), "a value that was there is lost"
    succeeded(engine.backfill(table, "y"))
    assert engine.rows(table)["y"].to_pylist() == [2, 4]
    engine.close()
