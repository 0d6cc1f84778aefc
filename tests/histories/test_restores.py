"""Jobs that read a version in which rows had left their fragment, and a restore that has put them back."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceOperation

from tests.engine import Engine, column_function, succeeded
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent


def doubled(x: int) -> int:
    return 2 * x


def write_in_place(engine: Engine, table: TableIdent, values: pa.Table) -> None:
    handle = engine.open(table)
    fragment, fields = handle.get_fragments()[0].update_columns(values, "id")
    change = LanceOperation.Update(
        updated_fragments=[fragment], fields_modified=list(fields), update_mode="rewrite_columns"
    )
    lance.LanceDataset.commit(handle.uri, change, read_version=handle.version)


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


def test_as_many_rows_may_have_left_the_fragment_as_were_put_back(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    table = engine.create_table("t", pa.table({"id": [1, 2, 3], "x": [1, 2, 3]}))
    engine.declare(table, "y", column_function(doubled, pa.int64(), "x", kind=FunctionKind.SCALAR), "x")
    succeeded(engine.backfill(table, "y", where="id = 2"))
    before = engine.open(table).version
    engine.open(table).update({"x": "5"}, where="id = 2")
    moved = engine.open(table).version
    engine.open(table).checkout_version(before).restore()
    engine.open(table).update({"x": "6"}, where="id = 3")
    succeeded(engine.backfill(table, "y", read_version=moved))
    rows = {row["id"]: row["y"] for row in engine.rows(table).to_pylist()}
    assert rows[2] == 4, "a value that was there is lost"
    succeeded(engine.backfill(table, "y"))
    rows = {row["id"]: row["y"] for row in engine.rows(table).to_pylist()}
    assert rows == {1: 2, 2: 4, 3: 12}
    engine.close()


def test_values_placed_elsewhere_do_not_count_where_the_rows_were_read(tmp_path: Path) -> None:
    """A pinned backfill reads what somebody wrote over results, and a compaction moves the rows meanwhile."""
    engine = Engine(tmp_path)
    table = engine.create_table("t", pa.table({"id": [1, 2], "x": [1, 2]}))
    engine.declare(table, "y", column_function(doubled, pa.int64(), "x", kind=FunctionKind.SCALAR), "x")
    succeeded(engine.backfill(table, "y"))
    engine.append(table, pa.table({"id": [3], "x": [3]}))
    write_in_place(engine, table, pa.table({"id": [1], "y": [-7]}))
    written_over = engine.open(table).version
    engine.open(table).optimize.compact_files()
    succeeded(engine.backfill(table, "y", read_version=written_over))
    engine.open(table).checkout_version(written_over).restore()
    succeeded(engine.backfill(table, "y"))
    assert engine.rows(table).sort_by("id")["y"].to_pylist() == [2, 4, 6]
    engine.close()
