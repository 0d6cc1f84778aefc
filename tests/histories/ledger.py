"""What has to be computed, told by the values of the rows alone: the measure for what the engine computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from tests.histories.computing import FORMULAS, Call, Number

Rows: TypeAlias = Mapping[int, Mapping[str, Any]]
Pair: TypeAlias = tuple[Number, Number]


class Standing(Enum):
    """Whether a row has to be computed; UNSURE if it holds a null that was a result once.

    A null that another writer left there looks the same, so that the row may be computed again. UNSURE as
    well if the row holds a result that was computed while its input changed: it may be published or not.
    """

    FRESH = "fresh"
    UNSURE = "unsure"
    DUE = "due"


@dataclass(frozen=True)
class Sight:
    """A row at one moment: how it stands, what it holds, and whether a checkpoint may have its value."""

    standing: Standing
    pair: Pair
    is_banked: bool

    @property
    def may_be_called(self) -> bool:
        return self.standing is not Standing.FRESH

    @property
    def must_be_called(self) -> bool:
        return self.standing is Standing.DUE and not self.is_banked


View: TypeAlias = dict[int, Sight]


@dataclass
class Ledger:
    """For each function a column has had: the values of every row whenever that function has covered it.

    `strayed` are rows that have held something else since, or have been written by another function.
    `banked` are inputs whose values a job may have left behind as checkpoints for the next one.
    `called` are results of all calls: a job may have published one whose input was changed meanwhile.
    """

    column: str
    given: str
    function: str
    covered: dict[str, dict[int, set[Pair]]] = field(default_factory=dict)
    strayed: dict[str, set[int]] = field(default_factory=dict)
    banked: dict[str, set[tuple[int, Number]]] = field(default_factory=dict)
    called: dict[str, set[tuple[int, Pair]]] = field(default_factory=dict)

    def value(self, given: Number) -> Number:
        return FORMULAS[self.function](given)

    def pair(self, row: Mapping[str, Any]) -> Pair:
        return row[self.given], row[self.column]

    def view(self, rows: Rows) -> View:
        banked = self.banked.get(self.function, set())
        return {
            row_id: Sight(self._standing(row_id, row), self.pair(row), (row_id, row[self.given]) in banked)
            for row_id, row in rows.items()
        }

    def observe(self, rows: Rows) -> None:
        """After every write: notes rows that are gone, or hold something else."""
        for function, pairs in self.covered.items():
            strayed = self.strayed.setdefault(function, set())
            for row_id in list(pairs):
                if row_id not in rows or self.pair(rows[row_id]) not in pairs[row_id]:
                    strayed.add(row_id)

    def replaced(self, row_ids: Iterable[int]) -> None:
        """Rows that got another identity: what they hold is known all the same."""
        for row_id in row_ids:
            self.doubted(row_id, with_own=True)

    def written(self, row_id: int, rows: Rows) -> None:
        """The column's function has covered the row, and no other one has any more."""
        self.doubted(row_id, with_own=False)
        self.kept(row_id, rows)

    def kept(self, row_id: int, rows: Rows) -> None:
        """The row is covered as it is, whether it was written or not."""
        self.covered.setdefault(self.function, {}).setdefault(row_id, set()).add(self.pair(rows[row_id]))
        self.strayed.setdefault(self.function, set()).discard(row_id)

    def doubted(self, row_id: int, *, with_own: bool) -> None:
        """Nobody can tell whether the row was written."""
        for function, pairs in self.covered.items():
            if row_id in pairs and (with_own or function != self.function):
                self.strayed.setdefault(function, set()).add(row_id)

    def bank(self, calls: Collection[Call]) -> None:
        self.banked.setdefault(self.function, set()).update((call.row, call.given) for call in calls)

    def note_calls(self, calls: Collection[Call]) -> None:
        made = self.called.setdefault(self.function, set())
        made.update((call.row, (call.given, self.value(call.given))) for call in calls)

    def clear_bank(self) -> None:
        self.banked.pop(self.function, None)

    def _standing(self, row_id: int, row: Mapping[str, Any]) -> Standing:
        pairs = self.covered.get(self.function, {})
        if self.pair(row) not in pairs.get(row_id, set()):
            is_known = (row_id, self.pair(row)) in self.called.get(self.function, set())
            return Standing.UNSURE if is_known else Standing.DUE
        is_strayed = row_id in self.strayed.get(self.function, set())
        return Standing.UNSURE if is_strayed and row[self.column] is None else Standing.FRESH


@dataclass(frozen=True)
class Bounds:
    """How often the function may be called for a row."""

    fewest: int
    most: int


def bounds(sights: Sequence[Sight | None], is_again: Sequence[bool]) -> Bounds:
    """A row before a job and after each write during it; None when it was not there.

    `is_again` says after which of the writes a result of the job's may be no good any more, or may be lost.
    A row is computed once for each of them at most, and once before.
    """
    most, may_be_called = 0, False
    for place, sight in enumerate(sights):
        if sight is None:
            continue
        before = sights[place - 1] if place else None
        may_be_called |= sight.may_be_called
        is_changed = before is None or before.pair[0] != sight.pair[0] or is_again[place - 1]
        most = most + may_be_called if is_changed else max(most, int(may_be_called))
    first, last = sights[0], sights[-1]
    if last is None:
        return Bounds(0, most)
    is_same = len({sight and sight.pair for sight in sights}) == 1 and not any(is_again)
    is_due = last.must_be_called or (is_same and first is not None and first.must_be_called)
    return Bounds(int(is_due), most)
