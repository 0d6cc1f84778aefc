"""Every kind of function gives exact values."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, filled

TEXTS: Final = ["a tide", "", None, "the mill house", "ebb"]
NUMBERS: Final = [1, None, -3, 0, 2**40]


def picture(brightness: int) -> bytes:
    encoded = io.BytesIO()
    Image.new("L", (3, 2), brightness).save(encoded, "PNG")
    return encoded.getvalue()


ROWS: Final = [
    {"text": text, "number": number, "image": picture(index * 10)}
    for index, (text, number) in enumerate(zip(TEXTS, NUMBERS, strict=True))
]


class Span(NamedTuple):
    first: str
    length: int


@dataclass
class Size:
    width: int
    height: int


@tidemill.udf
def words(text: str | None) -> int:
    return len((text or "").split())


@tidemill.udf
def label(text: str | None, number: int | None) -> str:
    return f"{text}:{number}"


@tidemill.udf
def is_long(text: str | None) -> bool | None:
    return None if text is None else len(text) > 5


@tidemill.udf
def moment(number: int | None) -> datetime | None:
    return None if number is None else datetime(2020, 1, 1 + abs(number) % 28)  # noqa: DTZ001


@tidemill.udf(output=pa.int32())
def length(text: pa.Array) -> pa.Array:
    return pc.utf8_length(text)


@tidemill.udf(inputs=["number", "text"], output=pa.int64())
def summed(batch: pa.RecordBatch) -> pa.Array:
    return pc.add(batch["number"], pc.cast(pc.utf8_length(batch["text"]), pa.int64()))


@tidemill.udf(inputs=["text"])
class Vowels:
    """Works only if `setup` has been called."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def setup(self) -> None:
        self.known = frozenset(self.letters)

    def __call__(self, text: str | None) -> int | None:
        return None if text is None else sum(letter in self.known for letter in text)


@tidemill.udf
def brightness(image: bytes) -> float:
    with Image.open(io.BytesIO(image)) as opened:
        return float(np.asarray(opened).mean())


@tidemill.udf
def thumbnail(image: bytes) -> bytes:
    return image[:4]


@tidemill.udf(output=pa.list_(pa.float32(), 2))
def vector(text: str | None) -> npt.NDArray[np.float32]:
    return np.array([len(text or ""), 0.5], np.float32)


@tidemill.udf
def span(text: str | None) -> Span | None:
    return Span(text[0], len(text)) if text else None


@tidemill.udf
def size(image: bytes) -> Size:
    with Image.open(io.BytesIO(image)) as opened:
        return Size(*opened.size)


@tidemill.udf
def letters(text: str | None) -> list[str] | None:
    return None if text is None else sorted(set(text))


def no_nulls(work: Callable[[str], Any]) -> list[Any]:
    return [None if text is None else work(text) for text in TEXTS]


KINDS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "scalar": (words, [2, 0, 0, 3, 1]),
    "two inputs": (label, [f"{text}:{number}" for text, number in zip(TEXTS, NUMBERS, strict=True)]),
    "optional": (is_long, [True, False, None, True, False]),
    "times": (moment, [None if n is None else datetime(2020, 1, 1 + abs(n) % 28) for n in NUMBERS]),  # noqa: DTZ001
    "arrays": (length, no_nulls(len)),
    "batch": (summed, [7, None, None, 14, 2**40 + 3]),
    "stateful": (Vowels("aeiou"), [3, 0, None, 5, 1]),
    "image": (brightness, [0.0, 10.0, 20.0, 30.0, 40.0]),
    "bytes": (thumbnail, [b"\x89PNG"] * 5),
    "vector": (vector, [[6.0, 0.5], [0.0, 0.5], [0.0, 0.5], [14.0, 0.5], [3.0, 0.5]]),
    "struct": (
        span,
        [{"first": text[0], "length": len(text)} if text else None for text in TEXTS],
    ),
    "dataclass": (size, [{"width": 3, "height": 2}] * 5),
    "list": (letters, no_nulls(lambda text: sorted(set(text)))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_exact(kind: str, make: Maker) -> None:
    function, expected = KINDS[kind]
    table = make.table(ROWS[:3], ROWS[3:])
    table.add_column("made", function)
    job = filled(table, "made")
    assert table.query(columns=["made"])["made"].to_pylist() == expected
    assert job.progress.computed == len(ROWS)


def test_two_instances_of_a_class_are_two_functions(make: Maker) -> None:
    table = make.table(ROWS)
    table.add_column("a", Vowels("a"))
    table.add_column("e", Vowels("e"))
    filled(table, "a")
    filled(table, "e")
    assert table.query(columns=["a", "e"]).to_pylist()[3] == {"a": 0, "e": 2}


def test_setup_is_called_once_per_process(make: Maker, calls: CallLog) -> None:
    @tidemill.udf(inputs=["text"])
    class Counting:
        def setup(self) -> None:
            calls.note(os.getpid())

        def __call__(self, text: str | None) -> int:
            return 1

    table = make.table(*[ROWS] * 6)
    table.add_column("made", Counting)
    filled(table, "made")
    assert 1 <= calls.count() == len(set(calls.lines()))
