"""Stages: pieces of work for an executor, as data, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import Function
from tidemill.jobs.model.plans import FragmentWork


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How many rows a function gets at a time, and how often results are put in safety.

    The first batch is small: how slow the function is, is not known yet, and nothing is safe before it ends.
    """

    initial_rows: int = 64
    min_rows: int = 1
    max_rows: int = 65536
    target: timedelta = timedelta(seconds=1)
    flush_interval: timedelta = timedelta(seconds=10)


@dataclass(frozen=True)
class CheckpointRef:
    """A file of values computed before, and the rows whose values in it still hold."""

    path: str
    rows: BitMap64


@dataclass(frozen=True)
class FunctionCall:
    """A function bound to columns of a table; `name` is the view's column it makes, if it makes just one."""

    function: Function
    inputs: tuple[str, ...]
    name: str | None = None


@dataclass(frozen=True)
class FillColumn:
    """Compute columns for rows of some fragments and write one column file per fragment.

    One column gets the function's result; several get one field of it each, those named by `struct_fields`.
    """

    job_id: str
    location: str
    version: int
    columns: pa.Schema
    struct_fields: tuple[str | None, ...]
    call: FunctionCall
    work: tuple[FragmentWork, ...]
    checkpoint_location: str
    checkpoints: tuple[CheckpointRef, ...] = ()
    parallelism: int | None = None
    batches: BatchPolicy = BatchPolicy()


@dataclass(frozen=True)
class ColumnFile:
    """A finished column file: a value per physical row; `rows` are those it brings up to date.

    `description` is how the table format names the file in a commit; it means nothing to us.
    `input_files` are those the values came from: while the fragment has them, the values fit its rows.
    """

    fragment_id: int
    input_files: frozenset[str]
    path: str
    description: Mapping[str, Any]
    physical_rows: int
    rows: BitMap64
    reused_rows: int = 0


@dataclass(frozen=True)
class Published:
    """The files a commit put in place (and its version), and those whose fragment was gone by then."""

    version: int | None
    files: tuple[ColumnFile, ...]
    orphans: tuple[ColumnFile, ...]


@dataclass(frozen=True)
class WriteViewRows:
    """Evaluate a view for rows of its source and write the results as fragments of the view."""

    job_id: str
    source_location: str
    source_version: int
    view_location: str
    output: pa.Schema
    work: tuple[FragmentWork, ...]
    calls: tuple[FunctionCall, ...]
    columns: Mapping[str, str]
    filter: str | None
    max_rows_per_fragment: int | None = None
    parallelism: int | None = None


@dataclass(frozen=True)
class RunTableFunction:
    """Give a function the rows of a view's source and write what it yields as fragments of the view.

    It is called once for each partition; those are conditions on the rows, one that is None takes them all.
    """

    job_id: str
    source_location: str
    source_version: int
    view_location: str
    output: pa.Schema
    call: FunctionCall
    columns: Mapping[str, str]
    filter: str | None
    limit: int | None
    offset: int | None
    partitions: tuple[str | None, ...]
    max_rows_per_fragment: int | None = None
    parallelism: int | None = None


@dataclass(frozen=True)
class ViewFragments:
    """Fragments written for a view, as JSON, not committed yet."""

    fragments: tuple[str, ...]
    rows: int
