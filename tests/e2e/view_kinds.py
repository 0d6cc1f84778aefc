"""Views of every kind over the same texts, with what each should show and functions that note their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import TIMEOUT, Maker, refreshed
from tidemill.sdk.jobs import Verification

Row: TypeAlias = dict[str, Any]
Shown: TypeAlias = list[tuple[Any, ...]]
NEVER: Final = "never"


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    place: str
    texts: int
    letters: int


def texts(*found: str, first: int = 0) -> list[Row]:
    """Rows with ids in order, of two places in turns."""
    return [
        {"id": first + number, "place": ("north", "south")[(first + number) % 2], "text": text}
        for number, text in enumerate(found)
    ]


def louder(calls: CallLog) -> Any:
    @tidemill.udf
    def loud(text: str) -> str:
        calls.note(text)
        return text.upper()

    return loud


def splitter(calls: CallLog) -> Any:
    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        calls.note(text)
        for word in text.split():
            yield Word(word)

    return words


def adder(calls: CallLog) -> Any:
    """One row for each place it is given; none for the place `never`."""

    @tidemill.udtf
    def totals(source: Any) -> Iterator[Total]:
        rows = source.to_list()
        places = sorted({row["place"] for row in rows})
        calls.note("+".join(places))
        for place in places:
            found = [row["text"] for row in rows if row["place"] == place]
            if place != NEVER:
                yield Total(place, len(found), sum(map(len, found)))

    return totals


def _totals(rows: Sequence[Row]) -> Shown:
    by_place = {
        place: [row["text"] for row in rows if row["place"] == place] for place in {r["place"] for r in rows}
    }
    return sorted(
        (place, len(found), sum(map(len, found))) for place, found in by_place.items() if place != NEVER
    )


@dataclass(frozen=True)
class Kind:
    """A kind of view: its definition, the columns that say all about a row, and the rows it should have."""

    name: str
    define: Callable[[tidemill.Table, CallLog], Any]
    columns: tuple[str, ...]
    expected: Callable[[Sequence[Row]], Shown]

    def create(
        self, make: Maker, source: tidemill.Table, calls: CallLog, name: str = "view", **options: Any
    ) -> tidemill.View:
        return created(make, self.define(source, calls), name, **options)

    def shown(self, view: tidemill.View) -> Shown:
        return rows_of(view, *self.columns)

    def is_right(self, view: tidemill.View, rows: Sequence[Row]) -> bool:
        return self.shown(view) == self.expected(rows)


QUERY: Final = Kind(
    "query",
    lambda source, calls: source.select("id", loud=louder(calls)),
    ("id", "loud"),
    lambda rows: sorted((row["id"], row["text"].upper()) for row in rows),
)
CHUNKER: Final = Kind(
    "chunker",
    lambda source, calls: source.select("id").chunk(splitter(calls)),
    ("id", "__child_index", "word"),
    lambda rows: sorted(
        (row["id"], number, word) for row in rows for number, word in enumerate(row["text"].split())
    ),
)
UDTF: Final = Kind(
    "udtf",
    lambda source, calls: adder(calls).over(source, partition_by="place"),
    ("place", "texts", "letters"),
    _totals,
)
SQL: Final = Kind(
    "sql",
    lambda source, calls: (
        f"SELECT place, count(*) AS texts, sum(length(text)) AS letters FROM {source.name} GROUP BY place"
    ),
    ("place", "texts", "letters"),
    _totals,
)
KINDS: Final = (QUERY, CHUNKER, UDTF, SQL)
CALLING: Final = (QUERY, CHUNKER, UDTF)


def named(kind: Kind) -> str:
    return kind.name


def created(make: Maker, definition: Any, name: str = "view", **options: Any) -> tidemill.View:
    return make.lake.create_materialized_view(f"{make.namespace}.{name}", definition, **options)


def rows_of(table: tidemill.Table, *columns: str) -> Shown:
    found = table.query(columns=list(columns)).to_pylist()
    return sorted((tuple(row[column] for column in columns) for row in found), key=repr)


def texts_of(source: tidemill.Table) -> list[Row]:
    """The rows that there are now."""
    rows: list[Row] = source.query(columns=["id", "place", "text"]).to_pylist()
    return rows


def result_of(view: tidemill.View, **options: Any) -> dict[str, Any]:
    """What a refresh says in the end."""
    result = refreshed(view, **options).result
    assert result is not None
    return result


def planned(job: tidemill.Job) -> dict[str, Any]:
    """What the job said it would do when it began."""
    return next(dict(event.data) for event in job.events() if event.kind == "planned")


def verified(view: tidemill.View) -> Verification:
    found = view.verify().wait(TIMEOUT).verification
    assert found is not None
    return found
