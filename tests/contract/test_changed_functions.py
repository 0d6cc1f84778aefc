"""A column gets another function: which values stay, which are due, and what is said about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import ColumnStatus, Keep
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.service.columns import ColumnDeclaration

SKIP = ErrorPolicy(ErrorAction.SKIP)


def broken(x: int) -> int:
    """Fails on the third and the fifth row."""
    if x in (2, 4):
        raise ValueError(f"{x} is too much")
    return x + 10


def fixed(x: int) -> int:
    return x + 20


def still_broken(x: int) -> int:
    raise ValueError("no better")


def version(compute: object, digest: str) -> Function:
    assert callable(compute)
    return column_function(compute, pa.int64(), "x", kind=FunctionKind.SCALAR, digest=digest)


BROKEN = version(broken, "1")
FIXED = version(fixed, "2")
STILL_BROKEN = version(still_broken, "3")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    """Six rows, of which a backfill has skipped two."""
    ident = engine.create_table("t", pa.table({"x": range(6), "z": range(6)}))
    engine.declare(ident, "y", BROKEN, "x")
    assert succeeded(engine.backfill(ident, "y", on_error=SKIP))["rows_skipped"] == 2
    return ident


def alter(engine: Engine, table: TableIdent, function: Function, keep: Keep | None, *inputs: str) -> None:
    declaration = ColumnDeclaration("y", function, inputs or ("x",))
    engine.operations.columns.alter(LOCAL_CALLER, table, declaration, keep)


def status(engine: Engine, table: TableIdent) -> ColumnStatus:
    return engine.operations.provenance.status(LOCAL_CALLER, table, "y", None)


def counts(engine: Engine, table: TableIdent) -> dict[str, int]:
    found = status(engine, table)
    named = {"fresh": found.fresh, "stale": found.stale, "missing": found.missing, "failed": found.failed}
    assert sum(named.values()) == found.rows
    return {name: count for name, count in named.items() if count}


def values(engine: Engine, table: TableIdent) -> list[int | None]:
    rows = engine.rows(table, ["x", "y"]).to_pylist()
    return [row["y"] for row in sorted(rows, key=lambda row: row["x"])]


def reason(engine: Engine, table: TableIdent, only: RowSelection | None = None) -> str:
    request = BackfillRequest("y", only=only)
    return engine.operations.explain.backfill(LOCAL_CALLER, table, request).plan.reason


def test_a_skipped_row_is_failed_and_not_fresh(engine: Engine, table: TableIdent) -> None:
    assert counts(engine, table) == {"fresh": 4, "failed": 2}
    assert reason(engine, table) == (
        "every other row is up to date; 2 failed, and only=failed computes them again"
    )


def test_a_failed_row_whose_input_was_updated_is_failed_and_due(engine: Engine, table: TableIdent) -> None:
    engine.open(table).update({"x": "12"}, where="x = 2")
    engine.open(table).update({"x": "13"}, where="x = 3")
    assert counts(engine, table) == {"fresh": 3, "stale": 1, "failed": 2}
    assert succeeded(engine.backfill(table, "y", on_error=SKIP))["rows_computed"] == 2
    assert counts(engine, table) == {"fresh": 5, "failed": 1}


def test_kept_values_stay_and_only_failed_rows_are_computed(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    assert counts(engine, table) == {"fresh": 4, "failed": 2}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 2
    assert values(engine, table) == [10, 11, 22, 13, 24, 15]
    assert counts(engine, table) == {"fresh": 6}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0


def test_kept_values_are_told_apart_by_their_function(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    succeeded(engine.backfill(table, "y"))
    told = {item.name: (item.rows, item.is_current, item.is_kept) for item in status(engine, table).functions}
    assert told == {"broken": (4, False, True), "fixed": (2, True, False)}


def test_missing_rows_are_computed_with_the_new_function(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    engine.append(table, pa.table({"x": [6], "z": [6]}))
    assert counts(engine, table) == {"fresh": 4, "missing": 1, "failed": 2}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 3
    assert values(engine, table)[6] == 26


@pytest.mark.parametrize("is_before", [True, False])
def test_a_kept_value_whose_input_was_updated_is_recomputed(
    engine: Engine, table: TableIdent, is_before: bool
) -> None:
    if not is_before:
        alter(engine, table, FIXED, Keep.COMPUTED)
    engine.open(table).update({"x": "100"}, where="x = 0")
    engine.open(table).update({"z": "100"}, where="x = 1")
    if is_before:
        alter(engine, table, FIXED, Keep.COMPUTED)
    assert counts(engine, table) == {"fresh": 3, "stale": 1, "failed": 2}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 3
    assert values(engine, table) == [11, 22, 13, 24, 15, 120]
    assert counts(engine, table) == {"fresh": 6}


def test_values_are_kept_through_several_versions(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    succeeded(engine.backfill(table, "y"))
    engine.append(table, pa.table({"x": [6], "z": [6]}))
    alter(engine, table, version(lambda x: x + 30, "4"), Keep.COMPUTED)
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 1
    assert values(engine, table) == [10, 11, 22, 13, 24, 15, 36]


def test_kept_values_survive_compaction(engine: Engine, table: TableIdent) -> None:
    engine.append(table, pa.table({"x": [6], "z": [6]}))
    alter(engine, table, FIXED, Keep.COMPUTED)
    engine.open(table).optimize.compact_files()
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 3


def test_a_row_that_fails_again_is_not_kept(engine: Engine, table: TableIdent) -> None:
    """The new error takes the place of the old one in the ledger."""
    alter(engine, table, STILL_BROKEN, Keep.COMPUTED)
    assert engine.backfill(table, "y").state is JobState.FAILED
    found = counts(engine, table)
    assert (found["fresh"], sum(found.values())) == (4, 6)
    alter(engine, table, FIXED, Keep.COMPUTED)
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 2
    assert values(engine, table) == [10, 11, 22, 13, 24, 15]


def test_failed_rows_alone_are_computed_with_the_new_function(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    engine.append(table, pa.table({"x": [6], "z": [6]}))
    assert succeeded(engine.backfill(table, "y", only=RowSelection.FAILED))["rows_computed"] == 2
    assert counts(engine, table) == {"fresh": 6, "missing": 1}


def test_without_keep_every_row_is_recomputed(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, None)
    assert counts(engine, table) == {"stale": 6}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 6
    assert values(engine, table) == [20, 21, 22, 23, 24, 25]


def test_without_keep_values_kept_before_are_recomputed_as_well(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    succeeded(engine.backfill(table, "y"))
    alter(engine, table, FIXED, None)
    assert counts(engine, table) == {"fresh": 2, "stale": 4}
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 4


def test_explain_says_what_is_kept(engine: Engine, table: TableIdent) -> None:
    alter(engine, table, FIXED, Keep.COMPUTED)
    assert reason(engine, table) == (
        "4 rows keep values of an earlier version of the function, "
        "2 failed, are new, were never computed or had an input updated"
    )


def test_failed_rows_of_another_function_are_refused_with_what_to_run(
    engine: Engine, table: TableIdent
) -> None:
    alter(engine, table, FIXED, None)
    with pytest.raises(
        InvalidInput, match=r"only: .*function has changed, so 6 rows are stale; leave out only"
    ):
        engine.backfill(table, "y", only=RowSelection.FAILED)
    assert reason(engine, table, RowSelection.FAILED) == (
        "0 rows are failed: the function has changed, so 6 rows are stale; "
        "leave out only=failed (retry_failed) to compute every row that is stale or missing"
    )


def test_failed_rows_are_none_where_nothing_failed(engine: Engine, table: TableIdent) -> None:
    succeeded(engine.backfill(table, "y", where="x < 6", on_error=SKIP))
    engine.open(table).delete("x IN (2, 4)")
    assert reason(engine, table, RowSelection.FAILED) == "0 rows are failed"
    assert succeeded(engine.backfill(table, "y", only=RowSelection.FAILED))["rows_computed"] == 0


def test_values_of_other_inputs_are_stale_though_the_function_is_the_same(
    engine: Engine, table: TableIdent
) -> None:
    engine.open(table).update({"z": "z + 100"}, where="true")
    alter(engine, table, FIXED, None)
    succeeded(engine.backfill(table, "y"))
    alter(engine, table, FIXED, None, "z")
    assert counts(engine, table) == {"stale": 6}
    succeeded(engine.backfill(table, "y"))
    assert values(engine, table) == [120, 121, 122, 123, 124, 125]


def test_values_of_other_inputs_cannot_be_kept(engine: Engine, table: TableIdent) -> None:
    with pytest.raises(InvalidInput, match=r"keep: the values of 'y' were computed from \(x\).*reads \(z\)"):
        alter(engine, table, FIXED, Keep.COMPUTED, "z")
    assert counts(engine, table) == {"fresh": 4, "failed": 2}


def test_a_plain_column_has_no_values_to_keep(engine: Engine, table: TableIdent) -> None:
    declaration = ColumnDeclaration("z", FIXED, ("x",))
    with pytest.raises(InvalidInput, match="keep: 'z' is no computed column"):
        engine.operations.columns.alter(LOCAL_CALLER, table, declaration, Keep.COMPUTED)


def test_values_of_another_type_cannot_be_kept(engine: Engine, table: TableIdent) -> None:
    text = column_function(str, pa.string(), "x", kind=FunctionKind.SCALAR, digest="5")
    with pytest.raises(InvalidInput, match="is int64 and str gives string"):
        alter(engine, table, text, Keep.COMPUTED)


def refusal(engine: Engine, table: TableIdent, name: str, function: Function) -> str:
    with pytest.raises(InvalidInput) as raised:
        engine.declare(table, name, function, "x")
    return str(raised.value)


def test_a_column_that_is_there_already_says_how_to_replace_its_function(
    engine: Engine, table: TableIdent
) -> None:
    assert refusal(engine, table, "y", FIXED) == (
        "name: t already has a column 'y', filled by broken (sha256:00000000); "
        'call alter_column("y", fixed, keep="computed") to keep the values computed so far, '
        'or alter_column("y", fixed) to recompute every row; or drop the column first'
    )


def test_a_column_that_has_the_function_already_is_to_be_filled(engine: Engine, table: TableIdent) -> None:
    assert refusal(engine, table, "y", BROKEN) == (
        "name: t already has a column 'y', filled by this version of broken; "
        'call backfill("y") to compute its values'
    )


def test_a_plain_column_of_that_name_is_to_be_dropped(engine: Engine, table: TableIdent) -> None:
    assert refusal(engine, table, "z", FIXED) == (
        "name: t already has a column 'z' that no function fills; "
        "choose another name, or drop the column first"
    )


def test_the_current_function_is_told_before_it_has_computed_anything(
    engine: Engine, table: TableIdent
) -> None:
    alter(engine, table, FIXED, None)
    told = {item.name: (item.rows, item.is_current) for item in status(engine, table).functions}
    assert told == {"broken": (6, False), "fixed": (0, True)}
