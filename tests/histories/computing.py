"""Functions that note whom they are called for: how often a row was computed can be counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tests.engine import FUNCTION_CALLS, column_function
from tidemill.catalog.model.functions import Function, FunctionKind

Number: TypeAlias = int | None


@dataclass(frozen=True)
class Call:
    """One row that a function was called with."""

    function: str
    row: int
    given: Number


# Pickled by reference, the functions find it here when they are called in this process.
CALLS: list[Call] = []


def tripled(x: Number, version: int) -> Number:
    """Null for nulls and for every seventh number: results that are rightly null must count as done.

    Versions agree on even numbers: a value that looks right may be of another version all the same.
    """
    if x is None or x % 7 == 0:
        return None
    return 3 * x + 1 + (1000 * version if x % 2 else 0)


FORMULAS: Final[Mapping[str, Callable[[Number], Number]]] = {
    "y0": lambda x: tripled(x, 0),
    "y1": lambda x: tripled(x, 1),
    "y2": lambda x: tripled(x, 2),
    "other": lambda x: None if x is None else -x,
    "sum": lambda y: -1 if y is None else y + 5,
}


@dataclass(frozen=True)
class Noted:
    """A formula as a function over arrays or single values."""

    name: str
    kind: FunctionKind

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, given: Any, row: Any) -> Any:
        if self.kind is FunctionKind.SCALAR:
            return self._value(given, row)
        pairs = zip(given.to_pylist(), row.to_pylist(), strict=True)
        return pa.array([self._value(*pair) for pair in pairs], pa.int64())

    def _value(self, given: Number, row: int) -> Number:
        CALLS.append(Call(self.name, row, given))
        FUNCTION_CALLS.called()
        return FORMULAS[self.name](given)


def noted_function(name: str, kind: FunctionKind) -> Function:
    # A real one: where checkpoints are kept is told from its beginning.
    digest = sha256(name.encode()).hexdigest()
    return column_function(Noted(name, kind), pa.int64(), "given", "row", kind=kind, digest=digest)
