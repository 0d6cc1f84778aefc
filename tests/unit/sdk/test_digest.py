"""The digest of a function: equal for equal code, another after any change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemill.sdk.digest import code_digest
from tidemill.sdk.functions import udf

SCRIPT = """
from __future__ import annotations
import enum, re, collections
from typing import NamedTuple
import pyarrow as pa
import tidemill

{above}
WORDS = {{"tide", "mill", "wheel", "water"}}
PATTERN = re.compile("[a-z]+")

class Colour(enum.Enum):
    RED = 1

class Row(NamedTuple):
    number: int

def helper(text):
    return len([word for word in PATTERN.findall(text) if word in WORDS or word in {{"a", "b", "c"}}])

@tidemill.udf
class Counter:
    colour = Colour.RED
    def __init__(self, factor=2):
        self.factor = factor
        self.seen = {{"x", "y", "z"}}
        self.counts = collections.defaultdict(int)
    def __call__(self, text: str) -> int:
        return self.factor * helper(text) + Row(1).number

@tidemill.udf
def count(text: str) -> int:
    return helper(text) if text else count("none")

print(count.function.digest, Counter(3).function.digest)
"""

SOURCE = """
FACTOR = {factor}

def helper(number):
    return number + {helper}

def outer(closed):
    def function(number, step={default}):
        return helper(number) * FACTOR + {constant} + step + closed
    return function

function = outer({closed})
"""
NUMBERS = {"factor": 2, "helper": 3, "default": 4, "constant": 5, "closed": 6}


def _digest_of(numbers: dict[str, int], above: str = "") -> str:
    scope: dict[str, Any] = {"__name__": "a_module_of_the_user"}
    exec(compile(above + SOURCE.format(**numbers), f"file_{len(above)}.py", "exec"), scope)
    function = scope["function"]
    assert isinstance(function, FunctionType)
    return code_digest(function)


def _run(script: Path, seed: str) -> str:
    search = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": search}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_two_processes_agree(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "moved" / "second.py"
    second.parent.mkdir()
    first.write_text(SCRIPT.format(above=""))
    second.write_text(SCRIPT.format(above="# Moved down.\n" * 10))
    assert _run(first, "1") == _run(second, "2") != ""


def test_place_and_line_do_not_matter() -> None:
    assert _digest_of(NUMBERS) == _digest_of(NUMBERS, above="\n\n# elsewhere\n\n")


@pytest.mark.parametrize("changed", list(NUMBERS))
def test_every_number_matters(changed: str) -> None:
    assert _digest_of(NUMBERS) != _digest_of({**NUMBERS, changed: 99})


def test_an_unused_global_does_not_matter() -> None:
    assert _digest_of(NUMBERS) == _digest_of(NUMBERS, above="UNUSED = 1\n")


def test_output_and_kind_matter() -> None:
    def half(number: float) -> float:
        return number / 2

    def half_array(number: pa.Array) -> pa.Array:
        return number

    double, single = udf(half), udf(output=pa.float32())(half)
    assert double.function.digest != single.function.digest
    assert udf(output=pa.float32())(half_array).function.digest != single.function.digest


def test_the_name_in_the_catalog_does_not_matter() -> None:
    def half(number: float) -> float:
        return number / 2

    assert udf(half).function.digest == udf(name="other")(half).function.digest


def test_changes_after_decoration_are_seen() -> None:
    scale = [1.0]

    @udf
    def scaled(number: float) -> float:
        return number * scale[0]

    before = scaled.function.digest
    scale[0] = 2.0
    assert scaled.function.digest != before


def test_functions_that_call_each_other_end() -> None:
    scope: dict[str, Any] = {"__name__": "a_module_of_the_user"}
    exec("def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)", scope)
    assert code_digest(scope["even"]).startswith("sha256:")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
        (np.array([1], np.int32), np.array([1], np.int64)),
        (1, 1.0),
        (1, True),
        ("ab", b"ab"),
        ([1, [2]], [[1], 2]),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (partial(int, base=2), partial(int, base=3)),
        (pa.int32(), pa.int64()),
        (len, max),
        (np.float32(1), np.float32(2)),
    ],
)
def test_different_values_differ(one: Any, other: Any) -> None:
    assert code_digest(one) == code_digest(one)
    assert code_digest(one) != code_digest(other)


def test_a_cached_function_is_known_by_its_code() -> None:
    def make(amount: int) -> Callable[[int], int]:
        @lru_cache
        def add(number: int) -> int:
            return number + amount

        return add

    assert code_digest(make(1)) == code_digest(make(1))
    assert code_digest(make(1)) != code_digest(make(2))


def test_a_container_that_holds_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert code_digest(endless) == code_digest(endless)


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(TypeError, match="cannot be sent to a worker"):
        code_digest(threading.Lock())
