"""Rows of computed columns as commands print them: previews, how fresh they are, errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from tidemill.cli.output import console, local_time, print_line
from tidemill.sdk.job_results import Preview, shortened
from tidemill.sdk.status import ColumnStatus, RowErrorInfo


def print_preview(preview: Preview) -> None:
    table = Table(box=None, header_style="bold")
    for name in preview.rows.column_names:
        table.add_column(escape(name))
    for row in preview.rows.to_pylist():
        table.add_row(*(escape(shortened(value)) for value in row.values()))
    print_line(preview.summary)
    console().print(table)
    for error in preview.errors:
        print_line(f"! {error}")


def preview_json(preview: Preview) -> dict[str, Any]:
    return {
        "table": preview.table,
        "column": preview.column,
        "job_id": preview.job_id,
        "source_version": preview.source_version,
        "rows_per_second": preview.rows_per_second,
        "reused": preview.reused,
        "truncated": preview.is_truncated,
        "rows": preview.rows.to_pylist(),
        "errors": [asdict(error) for error in preview.errors],
    }


def print_status(status: ColumnStatus) -> None:
    print_line(str(status))
    if not status.functions:
        return
    table = Table("Function", "Rows", "Current", "Digest", box=None, header_style="bold")
    for function in status.functions:
        current = "yes" if function.is_current else "no"
        table.add_row(escape(function.name), f"{function.rows:,}", current, function.digest)
    console().print(table)


def print_errors(errors: Iterable[RowErrorInfo], *, with_tracebacks: bool) -> None:
    for error in errors:
        outcome = "skipped" if error.is_skipped else "ended the job"
        print_line(f"{local_time(error.at)} {error}; {outcome} (job {error.job_id})")
        if with_tracebacks and error.traceback:
            print_line(error.traceback.rstrip())
