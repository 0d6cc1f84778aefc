"""Whatever a function is made of is in its digest; the process and the order of sets are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.sdk.digest import code_digest
from tidemill.sdk.functions import udf

IMPORTS: Final = """
import collections, dataclasses, datetime, decimal, enum, functools, re, typing
import numpy as np
import pyarrow as pa
"""

# A module that defines `function`, with a gap, and two ways to fill the gap.
Ingredient = tuple[str, str, str]
GLOBAL: Final = "VALUE = {}\ndef function(x): return x, VALUE"
CLOSURE: Final = "def outer(value):\n    def function(x): return x, value\n    return function\n"


def held(one: str, other: str) -> Ingredient:
    """Two values of a global that the function reads."""
    return GLOBAL, one, other


INGREDIENTS: Final[Mapping[str, Ingredient]] = {
    "a constant": ("def function(x): return x + {}", "1", "2"),
    "a name": ("def function(x): return x.{}", "real", "imag"),
    "an operator": ("def function(x): return x {} 2", "+", "-"),
    "an exception": (
        "def function(x):\n    try: return 1 / x\n    except {}: return 0",
        "ValueError",
        "OSError",
    ),
    "a positional default": ("def function(x, step={}): return x + step", "1", "2"),
    "a positional-only default": ("def function(x, step={}, /): return x + step", "1", "2"),
    "a keyword-only default": ("def function(x, *, step={}): return x + step", "1", "2"),
    "the lack of a keyword-only default": ("def function(x, *, step{}): return x + step", "", "=1"),
    "which keyword has the default": (
        "def function(x, *, {}): return x + a + b",
        "a=1, b=2",
        "a=2, b=1",
    ),
    "the kind of a parameter": ("def function(x, {}step=1): return x + step", "", "*, "),
    "a default of a helper": (
        "def helper(x, step={}): return x + step\ndef function(x): return helper(x)",
        "1",
        "2",
    ),
    "a keyword-only default of a helper": (
        "def helper(x, *, step={}): return x + step\ndef function(x): return helper(x)",
        "1",
        "2",
    ),
    "a keyword-only default of a helper's helper": (
        "def inner(x, *, step={}): return x + step\n"
        "def helper(x): return inner(x)\n"
        "def function(x): return helper(x)",
        "1",
        "2",
    ),
    "a keyword-only default of a nested function": (
        "def function(x):\n    def inner(y, *, step={}): return y + step\n    return inner(x)",
        "1",
        "2",
    ),
    "a constant of a nested function": (
        "def function(x):\n    def inner(y): return [z + {} for z in y]\n    return inner(x)",
        "1",
        "2",
    ),
    "a default of a lambda": ("add = lambda x, *, n={}: x + n\ndef function(x): return add(x)", "1", "2"),
    "a keyword-only default of a method": (
        "class Adder:\n    def add(self, x, *, step={}): return x + step\n"
        "def function(x): return Adder().add(x)",
        "1",
        "2",
    ),
    "a closed-over value": (CLOSURE + "function = outer({})", "1", "2"),
    "a closed-over pattern": (CLOSURE + "function = outer(re.compile('a', {}))", "0", "re.I"),
    "a closed-over function": (
        CLOSURE + "def helper(x, *, step={}): return x + step\nfunction = outer(helper)",
        "1",
        "2",
    ),
    "an attribute of the function": (
        "def function(x): return x + function.step\nfunction.step = {}",
        "1",
        "2",
    ),
    "a wrapped function": (
        "def twice(f):\n    @functools.wraps(f)\n    def call(x): return f(f(x))\n    return call\n"
        "@twice\ndef function(x, *, step={}): return x + step",
        "1",
        "2",
    ),
    "a class attribute": ("class Step:\n    size = {}\ndef function(x): return x + Step.size", "1", "2"),
    "a class attribute of a base": (
        "class Base:\n    size = {}\nclass Step(Base): pass\ndef function(x): return x + Step.size",
        "1",
        "2",
    ),
    "a metaclass": (
        "class Meta(type):\n    def size(cls): return {}\nclass Step(metaclass=Meta): pass\n"
        "def function(x): return x + Step.size()",
        "1",
        "2",
    ),
    "a property": (
        "class Step:\n    @property\n    def size(self): return {}\ndef function(x): return x + Step().size",
        "1",
        "2",
    ),
    "a default of a dataclass": (
        "@dataclasses.dataclass\nclass Step:\n    size: int = {}\ndef function(x): return x + Step().size",
        "1",
        "2",
    ),
    "a default factory of a dataclass": (
        "@dataclasses.dataclass\nclass Step:\n    sizes: list = dataclasses.field(default_factory={})\n"
        "def function(x): return Step().sizes",
        "list",
        "set",
    ),
    "a default of a named tuple": (
        "class Step(typing.NamedTuple):\n    size: int = {}\ndef function(x): return x + Step().size",
        "1",
        "2",
    ),
    "an attribute of an instance": (
        "class Step:\n    def __init__(self, size): self.size = size\n"
        "STEP = Step({})\ndef function(x): return x + STEP.size",
        "1",
        "2",
    ),
    "a slot of an instance": (
        "class Step:\n    __slots__ = ('size',)\n    def __init__(self, size): self.size = size\n"
        "STEP = Step({})\ndef function(x): return x + STEP.size",
        "1",
        "2",
    ),
    "a value of an enum": (
        "class Colour(enum.Enum):\n    RED = {}\ndef function(x): return Colour.RED.value",
        "1",
        "2",
    ),
    "a member of an enum": (
        "class Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
        "VALUE = Colour.{}\ndef function(x): return VALUE",
        "RED",
        "BLUE",
    ),
    "a method of an enum": (
        "class Colour(enum.Enum):\n    RED = 1\n    def shade(self): return {}\n"
        "VALUE = Colour.RED\ndef function(x): return VALUE.shade()",
        "1",
        "2",
    ),
    "combined flags": (
        "class Access(enum.Flag):\n    READ = 1\n    WRITE = 2\n    RUN = 4\n"
        "VALUE = Access.READ | Access.{}\ndef function(x): return VALUE",
        "WRITE",
        "RUN",
    ),
    "a function as a value of an enum": (
        "class Way(enum.Enum):\n    ADD = functools.partial(lambda x, *, n={}: x + n)\n"
        "VALUE = Way.ADD\ndef function(x): return VALUE.value(x)",
        "1",
        "2",
    ),
    "a set that leads back to itself": (
        "def helper(x, *, step={}): return x + step + len(HELPERS)\n"
        "HELPERS = {{helper}}\ndef function(x): return HELPERS",
        "1",
        "2",
    ),
    "flags of a pattern": held("re.compile('a b')", "re.compile('a b', re.X)"),
    "the text of a pattern": held("re.compile('a')", "re.compile('b')"),
    "the type of a pattern": held("re.compile('a')", "re.compile(b'a')"),
    "a pattern in a dict": held("{'p': re.compile('a', re.M)}", "{'p': re.compile('a', re.S)}"),
    "bytes": held("b'a'", "b'b'"),
    "bytes or text": held("b'a'", "'a'"),
    "bytes or an array of bytes": held("b'a'", "bytearray(b'a')"),
    "an integer or a truth": held("1", "True"),
    "an integer or a float": held("1", "1.0"),
    "the sign of a zero": held("0.0", "-0.0"),
    "a set": held("{'a', 'b', 'c'}", "{'a', 'b', 'd'}"),
    "a set or a frozen one": held("{'a', 'b'}", "frozenset({'a', 'b'})"),
    "the order of a list": held("['a', 'b']", "['b', 'a']"),
    "a list or a tuple": held("['a', 'b']", "('a', 'b')"),
    "a nested set": held("{frozenset({'a', 'b'}), 'c'}", "{frozenset({'a', 'c'}), 'b'}"),
    "the factory of a default dict": held("collections.defaultdict(int)", "collections.defaultdict(list)"),
    "a dict or an ordered one": held("{'a': 1}", "collections.OrderedDict(a=1)"),
    "a subclass of a list": (
        "class Words(list):\n    limit = {}\nVALUE = Words(['a'])\ndef function(x): return VALUE",
        "1",
        "2",
    ),
    "an argument of a partial": held("functools.partial(int, '1')", "functools.partial(int, '2')"),
    "a keyword of a partial": held("functools.partial(int, base=2)", "functools.partial(int, base=3)"),
    "the function of a partial": (
        "def helper(x, *, step={}): return x + step\n"
        "VALUE = functools.partial(helper, 1)\ndef function(x): return VALUE()",
        "1",
        "2",
    ),
    "a numpy scalar": held("np.float32(1)", "np.float32(2)"),
    "the type of a numpy scalar": held("np.float32(1)", "np.float64(1)"),
    "a numpy time": held("np.datetime64('2026-01-01')", "np.datetime64('2026-01-02')"),
    "a numpy array": held("np.array([1, 2])", "np.array([2, 1])"),
    "the shape of a numpy array": held("np.zeros((2, 3))", "np.zeros((3, 2))"),
    "the mask of a numpy array": held("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[1, 0])"),
    "a numpy array of objects": held("np.array(['a', 1], object)", "np.array(['a', 2], object)"),
    "a numpy type": held("np.dtype('<i4')", "np.dtype('>i4')"),
    "a numpy function": held("np.add", "np.subtract"),
    "an Arrow scalar": held("pa.scalar(1)", "pa.scalar(2)"),
    "the type of an Arrow scalar": held("pa.scalar(1, pa.int32())", "pa.scalar(1, pa.int64())"),
    "an Arrow array": held("pa.array([1, 2])", "pa.array([1, None])"),
    "an Arrow type": held("pa.timestamp('s')", "pa.timestamp('s', 'UTC')"),
    "whether an Arrow field may be null": held(
        "pa.field('a', pa.int32())", "pa.field('a', pa.int32(), nullable=False)"
    ),
    "an Arrow schema": held("pa.schema({'a': pa.int32()})", "pa.schema({'b': pa.int32()})"),
    "a decimal": held("decimal.Decimal('1.0')", "decimal.Decimal('1.00')"),
    "a date": held("datetime.date(2026, 1, 1)", "datetime.date(2026, 1, 2)"),
    "a bound method": held("'a'.join", "'b'.join"),
}

PRINT_DIGESTS: Final = """
import json, sys
from tests.unit.sdk.test_digest_ingredients import every_digest
print(json.dumps(every_digest()))
"""


def defined(source: str) -> Any:
    module = ModuleType("a_module_of_the_user")
    module.__file__ = "/of_the_user/a_module_of_the_user.py"
    # Dataclasses look for the module that they are defined in.
    sys.modules[module.__name__] = module
    try:
        exec(compile(IMPORTS + source, module.__file__, "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    return module.__dict__["function"]


def digest_of(source: str) -> str:
    return code_digest(defined(source))


def sources(ingredient: Ingredient) -> tuple[str, str]:
    template, one, other = ingredient
    return template.format(one), template.format(other)


def every_digest() -> dict[str, list[str]]:
    return {name: [digest_of(source) for source in sources(each)] for name, each in INGREDIENTS.items()}


@pytest.mark.parametrize("ingredient", INGREDIENTS.values(), ids=INGREDIENTS)
def test_an_ingredient_that_changes_makes_another_function(ingredient: Ingredient) -> None:
    one, other = sources(ingredient)
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) != digest_of(other)


@pytest.mark.parametrize("seed", ["1", "77"])
def test_every_process_finds_the_same_digests(seed: str) -> None:
    search = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": search}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(printed) == every_digest()


def test_annotations_of_helpers_do_not_matter() -> None:
    template = "def helper(x: {0}) -> {0}: return x\ndef function(x): return helper(x)"
    assert digest_of(template.format("int")) == digest_of(template.format("str"))


def test_hints_matter_where_they_say_what_is_computed() -> None:
    one, other = (
        udf(defined(f"def function(x: int) -> {hint}: return x")).function.digest for hint in ("int", "float")
    )
    assert one != other


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda values: st.tuples(values, values) | st.frozensets(values, max_size=4),
    max_leaves=8,
)


def written(value: Any) -> str:
    """Tells apart what Python takes for equal, and orders sets."""
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(written, value)))}}}"
    return f"{type(value).__name__} {value!r}"


@given(VALUES, VALUES)
def test_values_have_the_same_digest_if_they_are_the_same(one: Any, other: Any) -> None:
    is_same = written(one) == written(other)
    assert (code_digest(one) == code_digest(other)) == is_same
    as_defaults = _function(default=one), _function(default=other)
    assert (code_digest(as_defaults[0]) == code_digest(as_defaults[1])) == is_same
    as_keywords = _function(keyword=one), _function(keyword=other)
    assert (code_digest(as_keywords[0]) == code_digest(as_keywords[1])) == is_same


def _function(*, default: Any = None, keyword: Any = None) -> Any:
    made = defined("def function(x, y=None, *, z=None): return x, y, z")
    made.__defaults__, made.__kwdefaults__ = (default,), {"z": keyword}
    return made


@given(st.lists(VALUES, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_the_order_in_which_a_set_was_filled_does_not_matter(values: list[Any], random: Any) -> None:
    shuffled = random.sample(values, len(values))
    assert code_digest(set(values)) == code_digest(set(shuffled))
    assert code_digest(frozenset(values)) == code_digest(frozenset(shuffled))
