"""Statements that Spark SQL evaluates: what they read, what they yield, and by which keys."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A table that a statement reads: what the user calls it, and the name it has in the plan's statement.

    `columns` are those read, whole columns at the top level. `key_columns` are those that tell which rows of
    the result a row can have part in; all sources of a plan that is refreshed by keys have them, and their
    first ones correspond, and so on.
    """

    levels: tuple[str, ...]
    name: str
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class SqlPlan:
    """A statement made ready for Spark: it reads sources by their names and yields `output`, `__key` first.

    `full_reason` says why the result can only be made as a whole; None means that rows with certain keys can
    be made from the source rows with these keys, and from no others.
    """

    statement: str
    sources: tuple[SqlSource, ...]
    output: pa.Schema
    full_reason: str | None = None
