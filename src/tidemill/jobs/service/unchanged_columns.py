"""Makes sure that what is being defined still finds the columns it was checked against.

The definition of a view, or the function of a column, is checked against the schema of a table before the
transaction that stores it. A column may be dropped in between. The drop looks for dependants in the
transaction of its own commit, after locking the table, and would not see a definition that is stored later.
So whoever stores one locks the table too, and compares the columns with those of the latest version.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow as pa

from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.errors import TidemillError
from tidemill.jobs.ports import JobTransaction
from tidemill.jobs.table_ports import TableData

ATTEMPTS: Final = 20
LONGEST_PAUSE_SECONDS: Final = 0.05

ResultT = TypeVar("ResultT")


class ColumnsChanged(ConcurrentModification):
    """Columns of a table have changed since a definition was checked; it has to be checked again."""

    def __init__(self, table: Table) -> None:
        super().__init__(f"The columns of {table.ident} changed in the meantime; try again")


def check_unchanged(
    tx: JobTransaction, data: TableData, table: Table, version: int, schema: pa.Schema
) -> None:
    """Raises ColumnsChanged unless the table, which is locked, still has the columns of that version."""
    latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
    if latest is not None and latest.version != version:
        check_still_there(data, table, latest.version, schema)


def check_still_there(data: TableData, table: Table, version: int, schema: pa.Schema) -> None:
    """Raises ColumnsChanged if a later version lacks one of these columns, or has it with another type."""
    try:
        now = data.schema(table, version)
    except (TidemillError, OSError, ValueError) as error:
        # Its number is reserved and its manifest not published yet.
        raise ColumnsChanged(table) from error
    types = {field.name: field.type for field in now}
    if any(types.get(field.name) != field.type for field in schema):
        raise ColumnsChanged(table)


def retry_changed(run: Callable[[], ResultT]) -> ResultT:
    """Runs what checks and stores a definition; again if columns change. Raises ColumnsChanged at last."""
    for _ in range(ATTEMPTS - 1):
        try:
            return run()
        except ColumnsChanged:
            time.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))
    return run()
