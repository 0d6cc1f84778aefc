"""What the scenarios of Geneva's client share: tables, jobs that are waited for, rows that are compared."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

TEXTS: Final = ["a b", "c", "d e f"]
STABLE: Final = {"new_table_enable_stable_row_ids": "true"}
OPTIONS: Final = {
    "concurrency": 2,
    "intra_applier_concurrency": 2,
    "max_rows_per_fragment": 2,
    "source_task_size": 1,
}
WAIT_SECONDS: Final = 240
POLL_SECONDS: Final = 0.2


class Calls:
    """One line per call of a function: the server that calls it is on this machine."""

    def __init__(self) -> None:
        path = tempfile.mkstemp(prefix="tidemill-calls-")[1]

        # Made here, and so pickled by value: the server does not have this module.
        # Where a function is called that was recorded, the file is not there.
        def note(what: object) -> None:
            import os

            if os.path.exists(path):
                with open(path, "a") as log:
                    log.write(f"{what}\n")

        self.note = note
        self._file = Path(path)

    def take(self) -> list[str]:
        """Those since the last look."""
        found = sorted(self._file.read_text().splitlines())
        self._file.write_text("")
        return found


class Scenarios:
    """Each method whose name begins with `scenario_` is one, with tables of its own."""

    def __init__(self, db: Any) -> None:
        self.db = db

    def table(self) -> Any:
        return self.db.create_table(new_name(), pa.table({"id": [1, 2, 3], "text": TEXTS}))

    def stable_table(self) -> Any:
        """One whose rows keep their ids, which a user of the client has to ask for."""
        rows = pa.table({"id": [1, 2, 3], "text": TEXTS})
        return self.db.create_table(new_name(), rows, storage_options=STABLE)

    def filled(self, table: Any, column: str, **options: Any) -> list[Any]:
        table.backfill_async(column, **options).result(timeout=WAIT_SECONDS)
        return values(table, column)

    def refreshed(self, view: Any, **options: Any) -> Any:
        view.refresh_async(**options).result(timeout=WAIT_SECONDS)
        return view

    def unchanged(self, view: Any, calls: Calls) -> None:
        """A refresh that finds nothing to do: no call, no version."""
        view.checkout_latest()
        before = view.version
        self.refreshed(view)
        view.checkout_latest()
        check((calls.take(), view.version), ([], before))

    def query_view(self, query: Any, **options: Any) -> Any:
        return self.db.create_materialized_view(new_name(), query, **options)

    def function_view(self, query: Any, function: Any, **options: Any) -> Any:
        return self.db.create_udtf_view(new_name(), query, function, **options)


def new_name() -> str:
    return f"t{uuid4().hex[:10]}"


def row(number: int, text: str) -> pa.Table:
    return pa.table({"id": [number], "text": [text]})


def values(table: Any, column: str) -> list[Any]:
    table.checkout_latest()
    rows = table.to_arrow().sort_by("id")
    found: list[Any] = rows[column].to_pylist()
    return found


def rows_of(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    """In any order that stays the same; nulls cannot be compared with values."""
    table.checkout_latest()
    rows = table.to_arrow()
    return sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True), key=repr)


def check(found: Any, expected: Any, *columns: str) -> None:
    if columns:
        found, expected = rows_of(found, *columns), sorted(expected, key=repr)
    assert found == expected, f"{found} is not {expected}"


def message_of(doing: Callable[[], object]) -> str:
    try:
        doing()
    except Exception as error:  # noqa: BLE001  # which classes the client raises is its own affair
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


def wait_for(look: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < give_up_at, f"{what} did not happen in time"
        time.sleep(POLL_SECONDS)


def run(scenarios: Scenarios, client: str, wanted: tuple[str, ...]) -> int:
    """Runs those whose title has one of the words; gives the exit code."""
    named = {
        name.removeprefix("scenario_").replace("_", " "): name
        for name in dir(scenarios)
        if name.startswith("scenario_")
    }
    chosen = {title: name for title, name in named.items() if not wanted or any(w in title for w in wanted)}
    assert chosen, f"no scenario has any of {', '.join(wanted)} in its title"
    failures = 0
    for title, name in chosen.items():
        Path(os.environ["TIDEMILL_SCENARIO_FILE"]).write_text(title)
        began_at = time.monotonic()
        scenario: Callable[[], None] = getattr(scenarios, name)
        try:
            scenario()
        except Exception:  # noqa: BLE001  # whatever happens is how this one ended
            failures += 1
            print(f"FAILED  {title}", flush=True)
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"passed  {title} ({time.monotonic() - began_at:.1f} s)", flush=True)
    print(f"{client}: {failures} of {len(chosen)} scenarios failed", flush=True)
    return 1 if failures else 0
