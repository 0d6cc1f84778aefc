"""Chunkers behave the same in the task and in a child."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.functions.calls import FIRST_ROW_ID, HERE, SKIP, settings
from tidemill.catalog.model.functions import EMPTY_DIGEST, Function, FunctionEncoding, FunctionKind
from tidemill.functions.api import CallSettings, ChunkFunction, Chunks, FunctionRaised
from tidemill.functions.isolation.pool import Isolation
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy

OUTPUT = pa.schema([("word", pa.string()), ("size", pa.int64())])
WORDS = "def f(x):\n    for word in x.split(): yield word, len(word)\n"

pytestmark = pytest.mark.parametrize("isolation", Isolation)


def chunked(text: str, values: list[str], how: CallSettings) -> Chunks:
    function = Function(
        name="f",
        digest=EMPTY_DIGEST,
        kind=FunctionKind.CHUNKER,
        parameters=("x",),
        output=OUTPUT,
        payload=dedent(text).encode(),
        python=HERE,
        encoding=FunctionEncoding.SOURCE,
        entrypoint="f",
    )
    given = pa.record_batch([pa.array(values, pa.string())], names=["x"])
    row_ids = np.arange(FIRST_ROW_ID, FIRST_ROW_ID + len(values), dtype=np.uint64)
    with ChunkFunction(FunctionCall(function, ("x",)), how, sleep=lambda seconds: None) as chunks:
        return chunks.compute(given, row_ids)


def words(children: Chunks) -> list[tuple[int, int, str]]:
    columns = (children.parents.tolist(), children.indexes.tolist(), children.columns[0].to_pylist())
    return list(zip(*columns, strict=True))


def test_chunks_have_their_parent_and_their_index(isolation: Isolation) -> None:
    found = chunked(WORDS, ["a bb", "", "ccc"], settings(isolation))
    assert words(found) == [(0, 0, "a"), (0, 1, "bb"), (2, 0, "ccc")]
    assert found.columns[1].to_pylist() == [1, 2, 3]


def test_the_row_of_a_generator_that_raises_is_found(isolation: Isolation) -> None:
    text = "def f(x):\n    yield 'a', 1\n    if x == 'b': raise ValueError('no b')\n"
    with pytest.raises(FunctionRaised, match="no b") as raised:
        chunked(text, ["a", "b"], settings(isolation))
    assert raised.value.failure.row_id == FIRST_ROW_ID + 1


@pytest.mark.parametrize("wrong", ["'a'", "('a',)", "{'letter': 'a'}", "('a', 'many')"])
def test_chunks_that_do_not_fit_the_output_fail_their_row(isolation: Isolation, wrong: str) -> None:
    found = chunked(
        f"def f(x):\n    yield 'good', 1\n    if x == 'b': yield {wrong}\n",
        ["a", "b", "c"],
        settings(isolation, SKIP),
    )
    assert words(found) == [(0, 0, "good"), (2, 0, "good")]
    assert [failure.row_id for failure in found.failures] == [FIRST_ROW_ID + 1]


def test_chunks_of_retried_rows_are_in_order(isolation: Isolation) -> None:
    once = "    tries.append(x)\n    if tries == ['b c']: 1 / 0\n    for"
    text = "tries = []\n" + WORDS.replace("    for", once)
    policy = ErrorPolicy(ErrorAction.FAIL, attempts=2)
    found = chunked(text, ["b c", "d"], settings(isolation, policy))
    assert words(found) == [(0, 0, "b"), (0, 1, "c"), (1, 0, "d")]


def test_no_rows_have_no_chunks(isolation: Isolation) -> None:
    found = chunked(WORDS, [], settings(isolation))
    assert (words(found), found.columns[1].type) == ([], pa.int64())


def test_chunks_of_parallel_executors_are_in_order(isolation: Isolation) -> None:
    found = chunked(WORDS, ["a b", "c", "", "d e"], settings(isolation, threads=3))
    assert words(found) == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (3, 0, "d"), (3, 1, "e")]
