"""Whether a view holds what its definition yields: what a verification found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.explain import counted


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
    """How the rows of a view compare with its definition, computed anew at the versions it was made of."""

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
    return Verification(
        view=view,
        is_same=bool(result["is_same"]),
        rows_checked=result["rows_checked"],
        rows_same=result["rows_same"],
        rows_missing=result["rows_missing"],
        rows_unexpected=result["rows_unexpected"],
        rows_different=result["rows_different"],
        source_versions=tuple(result.get("source_versions") or ()),
        differences=tuple(map(_difference, result.get("differences") or ())),
    )


def _difference(body: Mapping[str, Any]) -> Difference:
    return Difference(
        kind=body["kind"],
        key=body.get("key"),
        columns=tuple(body.get("columns") or ()),
        expected=body.get("expected"),
        found=body.get("found"),
    )
