"""Prints how often functions are called in the histories of `docs/exactness.md`, next to the fewest possible.

python -m tests.histories.exactness
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tests.engine import Engine, chunker_function, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.columns import Keep
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

ROWS: Final = 1000
CALLS: list[Any] = []
EVERYTHING: Final = "id >= 0"


def scored(x: int) -> int:
    CALLS.append(x)
    return 3 * x


def failing(x: int) -> int:
    CALLS.append(x)
    if x < 3:
        raise ValueError(x)
    return 3 * x


def loud(text: str) -> str:
    CALLS.append(text)
    return text.upper()


def sentences(text: str) -> Iterator[tuple[str, int]]:
    """Each with the place where it begins."""
    start = 0
    for sentence in text.split("."):
        yield sentence, start
        start += len(sentence) + 1


def embedded(sentence: str) -> float:
    CALLS.append(sentence)
    return float(len(sentence))


class Lake:
    """A table with a computed column, a view of it with a function, and its texts as embedded sentences."""

    def __init__(self, folder: str) -> None:
        self.engine = Engine(Path(folder))
        ids = list(range(ROWS))
        texts = [f"row {i}.one more.and a last one" for i in ids]
        rows = {"id": ids, "x": ids, "clean": [-i for i in ids], "note": ["n"] * ROWS, "text": texts}
        self.table = self.engine.create_table("t", pa.table(rows))
        self.function = column_function(scored, pa.int64(), "x", kind=FunctionKind.SCALAR)
        self.engine.declare(self.table, "y", self.function, "x")
        succeeded(self.engine.backfill(self.table, "y"))

    def update(self, values: dict[str, str], where: str = EVERYTHING) -> None:
        self.engine.open(self.table).update(values, where=where)

    def backfill(self) -> None:
        succeeded(self.engine.backfill(self.table, "y"))

    def optimize(self, ident: TableIdent) -> None:
        self.engine.open(ident).optimize.compact_files()
        self.engine.open(ident).cleanup_old_versions(timedelta(0))

    def rename(self, **names: str) -> None:
        changes: list[Any] = [{"path": old, "name": new} for old, new in names.items()]
        self.engine.open(self.table).alter_columns(*changes)

    def view(self) -> TableIdent:
        function = column_function(loud, pa.string(), "text", kind=FunctionKind.SCALAR, digest="2")
        query = SourceQuery(self.table.levels, {"id": "id", "note": "note"})
        column = FunctionColumn("loud", 2, function, ("text",))
        view = self.engine.define_view(
            "v", ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=(column,))
        )
        succeeded(self.engine.refresh(view))
        return view

    def chunks(self) -> TableIdent:
        output = pa.schema([pa.field("sentence", pa.string()), pa.field("start", pa.int64())])
        view = self.engine.create_view(
            "c", self.table, chunker_function(sentences, output, "text"), columns={"id": "id"}
        )
        succeeded(self.engine.refresh(view))
        function = column_function(embedded, pa.float64(), "sentence", kind=FunctionKind.SCALAR, digest="3")
        self.engine.declare(view, "embedding", function, "sentence")
        succeeded(self.engine.backfill(view, "embedding"))
        return view


@dataclass(frozen=True)
class History:
    """What happens to a lake; `run` returns how many calls the jobs at its end need."""

    name: str
    run: Callable[[Lake], int]


def nothing_happens(lake: Lake) -> int:
    CALLS.clear()
    lake.backfill()
    return 0


def inputs_change(lake: Lake) -> int:
    lake.update({"x": "x + 100000"}, "id < 10")
    lake.engine.append(
        lake.table, pa.table({"id": [ROWS], "x": [5], "clean": [5], "note": [""], "text": [""]})
    )
    CALLS.clear()
    lake.backfill()
    return 11


def other_columns_change(lake: Lake) -> int:
    lake.update({"note": "'seen'"})
    CALLS.clear()
    lake.backfill()
    return 0


def a_clean_up(lake: Lake) -> int:
    lake.update({"note": "'seen'"}, "id < 500")
    lake.optimize(lake.table)
    CALLS.clear()
    lake.backfill()
    return 0


def a_clean_up_after_changes(lake: Lake) -> int:
    lake.update({"x": "x + 100000"}, "id < 10")
    lake.update({"note": "'seen'"})
    lake.optimize(lake.table)
    CALLS.clear()
    lake.backfill()
    return 10


def a_swap_of_names(lake: Lake) -> int:
    lake.rename(x="raw", clean="x")
    CALLS.clear()
    lake.backfill()
    return 0


def there_and_back(lake: Lake) -> int:
    lake.update({"x": "x + 1"})
    lake.optimize(lake.table)
    lake.update({"x": "x - 1"})
    CALLS.clear()
    lake.backfill()
    return 0


def a_restore(lake: Lake) -> int:
    version = lake.engine.open(lake.table).version
    lake.update({"x": "x + 1"})
    lake.backfill()
    lake.engine.open(lake.table).checkout_version(version).restore()
    CALLS.clear()
    lake.backfill()
    return 0


def a_branch(lake: Lake) -> int:
    lake.engine.operations.refs.create_branch(LOCAL_CALLER, lake.table, "dev", "main", None)
    CALLS.clear()
    succeeded(lake.engine.backfill(lake.table, "y", branch="dev"))
    return 0


def an_overwrite(lake: Lake) -> int:
    handle = lake.engine.open(lake.table)
    handle.insert(handle.to_table(), mode="overwrite")
    CALLS.clear()
    lake.backfill()
    return 0


def values_are_edited(lake: Lake) -> int:
    lake.update({"y": "7"}, "id < 5")
    CALLS.clear()
    lake.backfill()
    return 5


def a_function_is_mended(lake: Lake) -> int:
    bad = column_function(failing, pa.int64(), "x", kind=FunctionKind.SCALAR, digest="8")
    good = column_function(scored, pa.int64(), "x", kind=FunctionKind.SCALAR, digest="9")
    columns = lake.engine.operations.columns
    columns.alter(LOCAL_CALLER, lake.table, ColumnDeclaration("y", bad, ("x",)))
    succeeded(lake.engine.backfill(lake.table, "y", on_error=ErrorPolicy(ErrorAction.SKIP)))
    columns.alter(LOCAL_CALLER, lake.table, ColumnDeclaration("y", good, ("x",)), Keep.COMPUTED)
    CALLS.clear()
    lake.backfill()
    return 3


def a_carried_column_changes(lake: Lake) -> int:
    view = lake.view()
    lake.update({"note": "'seen'"})
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    return 0


def a_view_is_edited(lake: Lake) -> int:
    view = lake.view()
    lake.engine.open(view).delete("id < 3")
    lake.engine.open(view).update({"loud": "'x'"}, where="id = 10")
    lake.engine.open(view).update({"note": "'x'"}, where="id = 20")
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    return 4


def a_clean_up_of_all(lake: Lake) -> int:
    view = lake.view()
    lake.update({"text": "'new'"}, "id < 10")
    lake.update({"note": "'seen'"})
    lake.optimize(lake.table)
    lake.optimize(view)
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    return 10


def a_source_is_restored(lake: Lake) -> int:
    view, version = lake.view(), lake.engine.open(lake.table).version
    lake.update({"text": "'new'"}, "id < 10")
    lake.engine.open(lake.table).checkout_version(version).restore()
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    return 0


def a_source_is_overwritten(lake: Lake) -> int:
    """All rows get other ids."""
    view = lake.view()
    handle = lake.engine.open(lake.table)
    handle.insert(handle.to_table(), mode="overwrite")
    lake.update({"text": "'new'"}, "id < 10")
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    return 10


def a_sentence_is_inserted(lake: Lake) -> int:
    view = lake.chunks()
    lake.update({"text": "concat('A new one.', text)"}, "id < 10")
    CALLS.clear()
    succeeded(lake.engine.refresh(view))
    succeeded(lake.engine.backfill(view, "embedding"))
    return 10


HISTORIES: Final = (
    History("nothing happened", nothing_happens),
    History("10 inputs updated, 1 row appended", inputs_change),
    History("another column updated in every row", other_columns_change),
    History("compaction and clean-up of all old versions", a_clean_up),
    History("10 inputs updated, every row rewritten, all old versions gone", a_clean_up_after_changes),
    History("a client renames x to raw and clean to x", a_swap_of_names),
    History("every input changed, compaction, changed back", there_and_back),
    History("restore to a version that was computed", a_restore),
    History("a new branch", a_branch),
    History("overwrite with the same rows", an_overwrite),
    History("5 computed values edited by hand", values_are_edited),
    History("a function mended, 3 rows had failed, keep=computed", a_function_is_mended),
    History("view: a column beside the function updated in every row", a_carried_column_changes),
    History("view: 3 rows deleted, 1 result and 1 other value edited by hand", a_view_is_edited),
    History("view: 10 texts updated, all old versions of source and view gone", a_clean_up_of_all),
    History("view: 10 texts updated, source restored", a_source_is_restored),
    History("view: source overwritten with the same rows, 10 texts updated", a_source_is_overwritten),
    History("view: one sentence inserted into each of 10 documents, with offsets", a_sentence_is_inserted),
)


def measure(history: History) -> tuple[int, int]:
    """Calls made and needed."""
    with tempfile.TemporaryDirectory(prefix="tidemill-exactness-") as folder:
        lake = Lake(folder)
        try:
            needed = history.run(lake)
            return len(CALLS), needed
        finally:
            lake.engine.close()


def main() -> None:
    table = Table("history", "calls", "fewest", title=f"Calls for a table of {ROWS:,} rows")
    for history in HISTORIES:
        made, needed = measure(history)
        table.add_row(history.name, f"{made:,}", f"{needed:,}")
    Console(width=110).print(table)


if __name__ == "__main__":
    # Functions are pickled by reference: they have to find this module, not the one that is run.
    from tests.histories import exactness

    exactness.main()
