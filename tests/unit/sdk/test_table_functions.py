"""`@udtf` on functions and classes, what they yield, and the rows they are put over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from tests.unit.sdk.test_definitions import DOCS, FakeSource, passages
from tidemill.catalog.model.functions import FunctionKind, decode_envelope, encode_envelope
from tidemill.functions.calling.in_process import yielded_batches
from tidemill.functions.failures import FunctionRaised
from tidemill.sdk import payload
from tidemill.sdk.functions import function_of, signature_of
from tidemill.sdk.table_functions import over, udtf

COUNTS = pa.schema([("word", pa.string()), ("letters", pa.int64())])


class Count(NamedTuple):
    word: str
    letters: int


@dataclass
class Place:
    row: int
    column: int


@dataclass
class Found:
    place: Place
    word: str | None


class Rows:
    """Stands in for what a worker hands over."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows

    def to_list(self) -> list[dict[str, Any]]:
        return list(self.rows)


@udtf
def counts(source: Rows) -> Iterator[Count]:
    for row in source.to_list():
        yield Count(row["word"], len(row["word"]))


def made(function: Any, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """What comes out of a function where it runs."""
    described = decode_envelope(encode_envelope(function_of(function)), "udtf")
    batches = list(yielded_batches(described, Rows(*rows), described.output))
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, described.output).to_pylist()
    return found


def test_a_table_function_has_the_columns_of_its_rows() -> None:
    function = counts.function
    assert (function.kind, function.parameters, function.output) == (FunctionKind.TABLE, (), COUNTS)
    assert counts.inputs == ()
    assert repr(counts) == "<tidemill table function counts>"


def test_a_table_function_is_called_as_before() -> None:
    assert list(counts(Rows({"word": "tide"}))) == [Count("tide", 4)]


def test_yielded_rows_become_batches() -> None:
    assert made(counts, {"word": "tide"}, {"word": "ebb"}) == [
        {"word": "tide", "letters": 4},
        {"word": "ebb", "letters": 3},
    ]


def test_many_rows_become_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "BATCH_ROWS", 2)
    batches = list(payload.RowBatches(lambda source: source, COUNTS)([("a", 1)] * 5))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]


def test_a_function_may_yield_batches_and_rows_in_turn() -> None:
    @udtf(output=COUNTS)
    def mixed(source: Rows) -> Iterator[Any]:
        yield {"word": "a"}
        yield pa.record_batch({"word": ["b"], "letters": [2]})
        yield ("c", 3)

    assert [row["word"] for row in made(mixed)] == ["a", "b", "c"]


def test_a_function_may_return_one_table_or_nothing() -> None:
    @udtf(output=COUNTS)
    def at_once(source: Rows) -> pa.Table:
        return pa.table({"word": ["b"], "letters": [2]})

    @udtf(output=COUNTS)
    def nothing(source: Rows) -> None: ...

    assert made(at_once) == [{"word": "b", "letters": 2}]
    assert made(nothing) == []


def test_rows_may_be_dataclasses_with_others_inside() -> None:
    @udtf
    def places(source: Rows) -> Iterator[Found]:
        yield Found(Place(1, 2), "tide")
        yield Found(Place(3, 4), None)

    assert made(places) == [
        {"place": {"row": 1, "column": 2}, "word": "tide"},
        {"place": {"row": 3, "column": 4}, "word": None},
    ]


def test_rows_may_hold_named_tuples() -> None:
    class Pair(NamedTuple):
        first: Count
        rest: list[Count]

    @udtf(output=Pair)
    def pairs(source: Rows) -> Iterator[Any]:
        yield Pair(Count("a", 1), [Count("b", 2)])

    assert made(pairs) == [{"first": {"word": "a", "letters": 1}, "rest": [{"word": "b", "letters": 2}]}]


def test_a_class_for_rows_may_be_a_typed_dict() -> None:
    class Line(TypedDict):
        word: str
        letters: int

    @udtf(output=Line)
    def lines(source: Rows) -> Iterator[Any]:
        yield {"word": "a", "letters": 1}

    assert lines.output == COUNTS
    assert made(lines) == [{"word": "a", "letters": 1}]


def test_a_class_is_stateful_and_prepares_itself() -> None:
    @udtf(inputs=["word"], timeout=3, packages=["numpy"])
    class Prefixed:
        def __init__(self, prefix: str = "a") -> None:
            self.prefix = prefix

        def setup(self) -> None:
            self.is_ready = True

        def __call__(self, source: Rows) -> Iterator[Count]:
            assert self.is_ready
            yield Count(self.prefix, 1)

    function = function_of(Prefixed("b"))
    assert made(Prefixed("b")) == [{"word": "b", "letters": 1}]
    assert function.is_stateful
    assert (function.timeout_seconds, function.requirements) == (3.0, ("numpy",))
    assert signature_of(Prefixed).inputs == ("word",)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("tide", "yielded a str"),
        ({"wrod": "a"}, r"unknown columns \['wrod'\]"),
        (("a",), r"1 values for the columns \['word', 'letters'\]"),
        (("a", "b"), "'letters' that are no int64"),
    ],
)
def test_what_does_not_fit_says_so(row: Any, said: str) -> None:
    @udtf(output=COUNTS)
    def wrong(source: Rows) -> Iterator[Any]:
        yield row

    with pytest.raises(FunctionRaised, match=said):
        made(wrong)


def unhinted(source): ...  # type: ignore[no-untyped-def]  # that is the fault


def untold(source: Rows) -> Iterator[pa.RecordBatch]:
    raise NotImplementedError


def of_two(source: Rows, other: Rows) -> Iterator[Count]:
    raise NotImplementedError


def by_keyword(*, source: Rows) -> Iterator[Count]:
    raise NotImplementedError


def of_none() -> Iterator[Count]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (unhinted, "unhinted has no return hint; write Iterator"),
        (untold, "untold: the columns it yields are not known: RecordBatch does not name columns"),
        (of_two, r"has to take one parameter, from which it reads rows: def of_two\(source\)"),
        (by_keyword, "has to take one parameter"),
        (of_none, "has to take one parameter"),
    ],
)
def test_a_fault_is_named_at_decoration(target: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        udtf(target)


@pytest.mark.parametrize("output", [pa.schema([]), pa.int64(), dict])
def test_an_output_that_names_no_columns_is_refused(output: Any) -> None:
    with pytest.raises(TypeError, match="does not name columns"):
        udtf(output=output)(lambda source: source)


def test_further_parameters_may_have_defaults() -> None:
    @udtf
    def limited(source: Rows, most: int = 3, *, least: int = 0) -> Iterator[Count]:
        raise NotImplementedError

    assert limited.function.parameters == ()


def test_other_code_is_another_version() -> None:
    @udtf(name="counts")
    def others(source: Rows) -> Iterator[Count]:
        yield Count("", 0)

    assert others.function.digest != counts.function.digest
    assert counts.function.digest == counts.function.digest


def test_a_function_is_put_over_a_table_or_a_query() -> None:
    over_table = counts.over(FakeSource())
    assert (over_table.inputs, over_table.partition_by) == (None, None)
    over_query = over(counts, DOCS.where("id > 1"), partition_by="id", inputs=["text"])
    assert (over_query.query.filter, over_query.inputs) == ("id > 1", ("text",))


@pytest.mark.parametrize(
    ("function", "rows", "options", "fault"),
    [
        (passages, DOCS, {}, TypeError("passages does not read rows itself")),
        (counts, "library.docs", {}, TypeError("counts reads a table")),
        (counts, DOCS, {"partition_by": "a", "partition_by_index": "b"}, ValueError("give one of the two")),
        (counts, DOCS, {"inputs": "text"}, TypeError(r"write inputs=\['text'\]")),
    ],
)
def test_what_makes_no_view_is_refused(
    function: Any, rows: Any, options: dict[str, Any], fault: Exception
) -> None:
    with pytest.raises(type(fault), match=str(fault)):
        over(function, rows, **options)
