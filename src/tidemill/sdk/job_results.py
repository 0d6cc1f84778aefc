"""What previews and verifications found."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidemill.sdk.explain import counted
from tidemill.sdk.http import from_answer
from tidemill.sdk.status import RowErrorInfo, row_error

SHOWN_ROWS: Final = 10
SHOWN_CHARACTERS: Final = 32


@dataclass(frozen=True)
class Preview:
    """What a column's function makes of some rows; nothing of it is published.

    `rows` has the row ids, the inputs and the results. `reused` of them were known already, for instance from
    an earlier preview. `is_truncated` says that large values were left out of the answer.
    """

    table: str
    column: str
    job_id: str
    source_version: int
    rows_per_second: float | None
    reused: int
    is_truncated: bool
    errors: tuple[RowErrorInfo, ...]
    rows: pa.Table

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table: `_rowid`, the inputs and the results."""
        return self.rows

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.rows.to_pandas()

    @property
    def summary(self) -> str:
        """What was previewed, in one line."""
        notes = [counted(self.rows.num_rows, "row")]
        if self.rows_per_second is not None:
            notes.append(f"{self.rows_per_second:,.4g} rows/s")
        if self.reused:
            notes.append(f"{self.reused:,} reused")
        if self.errors:
            notes.append(f"{len(self.errors):,} failed")
        if self.is_truncated:
            notes.append("truncated")
        return f"Preview of {self.table}.{self.column} at version {self.source_version}: {', '.join(notes)}"

    def __repr__(self) -> str:
        shown = self.rows.slice(0, SHOWN_ROWS)
        lines = [[str(name) for name in shown.column_names]]
        lines += [[shortened(value) for value in row.values()] for row in shown.to_pylist()]
        return "\n".join([self.summary, *_aligned(lines), *(f"! {error}" for error in self.errors)])


def read_preview(table: str, column: str, job_id: str, result: Mapping[str, Any]) -> Preview:
    return from_answer(
        Preview,
        result,
        table=table,
        column=column,
        job_id=job_id,
        reused=result.get("rows_reused", 0),
        is_truncated=bool(result.get("truncated")),
        errors=tuple(row_error(column, item) for item in result.get("errors") or ()),
        rows=pa.ipc.open_stream(base64.b64decode(result["arrow"])).read_all(),
    )


def shortened(value: Any) -> str:
    """A value in a few characters of one line."""
    # Slices first: a value may be an image.
    begin = value[: 2 * SHOWN_CHARACTERS] if isinstance(value, str | bytes | list) else value
    text = begin if isinstance(begin, str) else repr(begin)
    line = " ".join(text.split())
    is_cut = len(line) > SHOWN_CHARACTERS or begin != value
    return line[: SHOWN_CHARACTERS - 1] + "…" if is_cut else line


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not as the definition has it.

    `kind` is `missing` (the view should have it), `unexpected` (it should not) or `different`; then `columns`
    are those whose values differ. `expected` and `found` are the values, `key` says which row it is.
    """

    kind: str
    key: Any
    columns: tuple[str, ...] = ()
    expected: Any = None
    found: Any = None


@dataclass(frozen=True, slots=True)
class Verification:
    """How the rows of a view compare with its definition, recomputed at the same source versions."""

    view: str
    is_same: bool
    rows_checked: int
    rows_same: int
    rows_missing: int
    rows_unexpected: int
    rows_different: int
    source_versions: tuple[int, ...]
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        head = f"{self.view}: {counted(self.rows_checked, 'row')} checked"
        if self.is_same:
            return f"{head}, all as the definition has them"
        return (
            f"{head}, {self.rows_same:,} the same, {self.rows_missing:,} missing, "
            f"{self.rows_unexpected:,} unexpected, {self.rows_different:,} different"
        )


def read_verification(view: str, result: Mapping[str, Any]) -> Verification:
    return from_answer(
        Verification,
        result,
        view=view,
        source_versions=tuple(result.get("source_versions") or ()),
        differences=tuple(map(_difference, result.get("differences") or ())),
    )


def _difference(body: Mapping[str, Any]) -> Difference:
    return from_answer(Difference, body, columns=tuple(body.get("columns") or ()))
