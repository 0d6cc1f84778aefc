"""What makes another version of a function, and what only writes the same one down in another way."""

from __future__ import annotations

import ast
import bisect
import heapq
import inspect
import json.decoder
import shlex
import statistics
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

from tests.unit.sdk.test_digest_ingredients import defined
from tidemill.sdk.bytecode import steps_of
from tidemill.sdk.digest import code_digest
from tidemill.sdk.functions import udf

Pair = tuple[str, str]
FUTURE: Final = "from __future__ import annotations\n"

SAME: Final[Mapping[str, Pair]] = {
    "a docstring": (
        "def function(x): return x + 1",
        'def function(x):\n    """Adds one."""\n    return x + 1',
    ),
    "a docstring where None is used": (
        "def function(x):\n    if x is None:\n        return None\n    return 'a'",
        "def function(x):\n    'Doc.'\n    if x is None:\n        return None\n    return 'a'",
    ),
    "another docstring": (
        "def function(x):\n    'One.'\n    return x",
        "def function(x):\n    'Another.'\n    return x",
    ),
    "a docstring that says what the code does": (
        "def function(x):\n    'a'\n    return 'a'",
        "def function(x):\n    'b'\n    return 'a'",
    ),
    "a docstring of a helper": (
        "def helper(x): return x\ndef function(x): return helper(x)",
        "def helper(x):\n    'Doc.'\n    return x\ndef function(x): return helper(x)",
    ),
    "a docstring of an inner function": (
        "def function(x):\n    def inner(y): return y, None\n    return inner(x)",
        "def function(x):\n    def inner(y):\n        'Doc.'\n        return y, None\n    return inner(x)",
    ),
    "a docstring of a class and its methods": (
        "class Step:\n    def size(self): return 1\ndef function(x): return Step().size()",
        "class Step:\n    'A step.'\n    def size(self):\n        'Its size.'\n        return 1\n"
        "def function(x): return Step().size()",
    ),
    "a docstring of a property": (
        "class Step:\n    @property\n    def size(self): return 1\ndef function(x): return Step().size",
        "class Step:\n    @property\n    def size(self):\n        'Doc.'\n        return 1\n"
        "def function(x): return Step().size",
    ),
    "a docstring of an inner class": (
        "def function(x):\n    class Step:\n        size = 1\n    return Step.size",
        "def function(x):\n    class Step:\n        'Doc.'\n        size = 1\n    return Step.size",
    ),
    "a docstring of the module": ("def function(x): return x", "__doc__ = 'Doc.'\ndef function(x): return x"),
    "a comment": ("def function(x):\n    return x", "def function(x):\n    # Why.\n    return x  # What."),
    "blank lines": (
        "def function(x):\n    y = x\n    return y",
        "def function(x):\n\n    y = x\n\n\n    return y",
    ),
    "an expression on several lines": (
        "def function(x): return [x + 1, x and 2 or x and 3 or 4]",
        "def function(x):\n return [\n  x + 1,\n  x\n  and 2\n  or x\n  and 3\n  or 4,\n ]",
    ),
    "a body on a line of its own": (
        "def function(x):\n    while True: x += 1; break\n    if x: pass\n    return x",
        "def function(x):\n while True:\n  x += 1\n  break\n if x:\n  pass\n return x",
    ),
    "an error that is passed over": (
        "def function(x):\n    try: return 1 / x\n    except ValueError: pass",
        "def function(x):\n try:\n\n  return 1 / x\n except ValueError:\n  # Why.\n  pass",
    ),
    "quotes": ("def function(x): return 'a'", 'def function(x): return "a"'),
    "parentheses": ("def function(x): return x + 1 * 2", "def function(x): return (x + (1 * 2))"),
    "lines above": ("def function(x): return x", "\n\nOTHER = 1\n\n\ndef function(x): return x"),
    "the order of helpers": (
        "def one(x): return x\ndef two(x): return x + 1\ndef function(x): return one(x) + two(x)",
        "def function(x): return one(x) + two(x)\ndef two(x): return x + 1\ndef one(x): return x",
    ),
    "hints": ("def function(x): return x", "def function(x: int) -> int: return x"),
    "hints of a variable": (
        "def function(x):\n    y = x\n    return y",
        "def function(x):\n    y: int = x\n    return y",
    ),
    "hints of an inner function": (
        "def function(x):\n    def inner(y: typing.Optional[int] = None) -> typing.List[int]: return [y, x]\n"
        "    return inner",
        "def function(x):\n    def inner(y: int | None = None) -> list[int]: return [y, x]\n    return inner",
    ),
    "hints of an inner function, or none": (
        "def function(x):\n    def inner(y, *, z=1): return y, x\n    return inner",
        "def function(x):\n def inner(y: 'int', *, z: int | None = 1) -> None: return y, x\n return inner",
    ),
    "hints that are text": (
        "def function(x):\n    def inner(y: int) -> int: return y\n    return inner(x)",
        FUTURE + "def function(x):\n    def inner(y: int) -> int: return y\n    return inner(x)",
    ),
    "hints of an inner class": (
        "def function(x):\n    class Step:\n        size: typing.Optional[int] = 1\n    return Step.size",
        "def function(x):\n    class Step:\n        size: int | None = 1\n    return Step.size",
    ),
    "hints of a dataclass": (
        "@dataclasses.dataclass\nclass Step:\n    size: typing.Optional[int] = 1\n"
        "def function(x): return Step().size",
        "@dataclasses.dataclass\nclass Step:\n    'Doc.'\n    size: int | None = 1\n"
        "def function(x): return Step().size",
    ),
    "hints of a named tuple": (
        "class Step(typing.NamedTuple):\n a: typing.Optional[int] = 1\ndef function(x): return Step().a",
        "class Step(typing.NamedTuple):\n 'Doc.'\n a: int | None = 1\ndef function(x): return Step().a",
    ),
    "where a cached helper is written": (
        "@functools.lru_cache\ndef helper(x): return x\ndef function(x): return helper(x)",
        "def make():\n @functools.lru_cache\n def helper(x):\n  'Doc.'\n  return x\n return helper\n"
        "helper = make()\ndef function(x): return helper(x)",
    ),
}

DIFFERENT: Final[Mapping[str, Pair]] = {
    "a text that is used": ("def function(x): return 'a'", "def function(x): return 'b'"),
    "a text that was a docstring": (
        "def function(x):\n    'a'\n    return x",
        "def function(x):\n    return 'a'",
    ),
    "and or or": ("def function(x): return x and 1", "def function(x): return x or 1"),
    "and in or": (
        "def function(x, y, z): return x and y or z",
        "def function(x, y, z): return x and (y or z)",
    ),
    "the branch": (
        "def function(x):\n    if x: return 1\n    return 2",
        "def function(x):\n    if not x: return 1\n    return 2",
    ),
    "where a loop ends": (
        "def function(x):\n    for y in x:\n        if y: break\n        z = y\n    return z",
        "def function(x):\n    for y in x:\n        if y: continue\n        z = y\n    return z",
    ),
    "what is inside try": (
        "def function(x):\n try:\n  y = 1 / x\n  z = y\n except ValueError: z = 0\n return z",
        "def function(x):\n    y = 1 / x\n    try: z = y\n    except ValueError: z = 0\n    return z",
    ),
    "a default of an inner function with hints": (
        "def function(x):\n    def inner(y: int = 1) -> int: return y\n    return inner()",
        "def function(x):\n    def inner(y: int = 2) -> int: return y\n    return inner()",
    ),
    "what an inner function with hints closes over": (
        "def function(x, z):\n    def inner(y: int) -> int: return y + x\n    return inner",
        "def function(x, z):\n    def inner(y: int) -> int: return y + z\n    return inner",
    ),
    "a value of an inner class with hints": (
        "def function(x):\n    class Step:\n        size: int = 1\n    return Step.size",
        "def function(x):\n    class Step:\n        size: int = 2\n    return Step.size",
    ),
    "a field of an inner class": (
        "def function(x):\n    class Step(typing.NamedTuple):\n        a: int\n    return Step",
        "def function(x):\n    class Step(typing.NamedTuple):\n        b: int\n    return Step",
    ),
    "a docstring that is read": (
        "def function(x):\n    'One.'\n    return function.__doc__",
        "def function(x):\n    'Another.'\n    return function.__doc__",
    ),
    "a docstring that is read by name": (
        "def function(x):\n    'One.'\n    return getattr(function, '__doc__')",
        "def function(x):\n    'Another.'\n    return getattr(function, '__doc__')",
    ),
    "a docstring of a helper that is read": (
        "def helper(x):\n    'One.'\n    return x\ndef function(x): return helper.__doc__",
        "def helper(x):\n    'Another.'\n    return x\ndef function(x): return helper.__doc__",
    ),
    "a docstring that a helper reads": (
        "def helper(f): return f.__doc__\ndef function(x):\n    'One.'\n    return helper(function)",
        "def helper(f): return f.__doc__\ndef function(x):\n    'Another.'\n    return helper(function)",
    ),
    "a docstring of a class that is read": (
        "class Step:\n    'One.'\ndef function(x): return Step.__doc__",
        "class Step:\n    'Another.'\ndef function(x): return Step.__doc__",
    ),
    "a docstring of an inner function that is read": (
        "def function(x):\n    def inner():\n        'One.'\n    return inner.__doc__",
        "def function(x):\n    def inner():\n        'Another.'\n    return inner.__doc__",
    ),
    "a docstring of an inner class that is read": (
        "def function(x):\n    class Step:\n        'One.'\n    return Step.__doc__",
        "def function(x):\n    class Step:\n        'Another.'\n    return Step.__doc__",
    ),
    "a docstring of the module that is read": (
        "__doc__ = 'One.'\ndef function(x): return __doc__",
        "__doc__ = 'Another.'\ndef function(x): return __doc__",
    ),
    "a docstring that is asked for": (
        "import inspect\ndef function(x):\n    'One.'\n    return inspect.getdoc(function)",
        "import inspect\ndef function(x):\n    'Another.'\n    return inspect.getdoc(function)",
    ),
}

HINTED: Final[Mapping[str, Pair]] = {
    "a result that may be missing": (
        "def function(x: int) -> typing.Optional[int]: return x",
        "def function(x: int) -> int | None: return x",
    ),
    "a result that may be missing, the other way round": (
        "def function(x: int) -> typing.Union[None, int]: return x",
        "def function(x: typing.Optional[int]) -> int | None: return x",
    ),
    "a list": (
        "def function(x: typing.List[int]) -> typing.List[int]: return x",
        "def function(x: list[int]) -> list[int]: return x",
    ),
    "text": ("def function(x: int) -> int: return x", "def function(x: 'int') -> 'int': return x"),
    "all hints as text": (
        "def function(x: int) -> list[float]: return [x]",
        FUTURE + "def function(x: int) -> list[float]: return [x]",
    ),
}


def digest_in(source: str) -> str:
    is_future = source.startswith(FUTURE)
    function = _defined_in_the_future(source) if is_future else defined(source)
    return code_digest(function)


def _defined_in_the_future(source: str) -> Any:
    """`defined` begins with imports, which a future statement has to come before."""
    scope: dict[str, Any] = {"__name__": "a_module_of_the_user"}
    exec(compile(source, "elsewhere.py", "exec"), scope)
    return scope["function"]


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_the_same_function_written_in_another_way_is_the_same_version(pair: Pair) -> None:
    one, other = map(digest_in, pair)
    assert one == other


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_a_function_that_does_something_else_is_another_version(pair: Pair) -> None:
    one, other = map(digest_in, pair)
    assert one != other


@pytest.mark.parametrize("pair", HINTED.values(), ids=HINTED)
def test_hints_that_mean_the_same_make_the_same_version(pair: Pair) -> None:
    scope_of = [_defined_in_the_future if source.startswith(FUTURE) else defined for source in pair]
    one, other = (udf(define(source)).function.digest for define, source in zip(scope_of, pair, strict=True))
    assert one == other


@pytest.mark.parametrize("option", [{"packages": ["numpy"]}, {"packages": ["numpy==2"]}])
def test_other_packages_make_another_version(option: dict[str, Any]) -> None:
    function = defined("def function(x: int) -> int: return x")
    others = [udf(function), udf(packages=["pandas"])(function)]
    assert udf(**option)(function).function.digest not in {other.function.digest for other in others}


def test_a_function_moved_to_another_module_is_the_same_version() -> None:
    source = (
        "def helper(x): return x + 1\nclass Step:\n size = 2\ndef function(x): return helper(x) + Step.size"
    )
    scopes: list[dict[str, Any]] = [{"__name__": "first"}, {"__name__": "second"}, {"__name__": "__main__"}]
    for number, scope in enumerate(scopes):
        exec(compile("\n" * number + source, f"file_{number}.py", "exec"), scope)
    assert len({code_digest(scope["function"]) for scope in scopes}) == 1


def test_source_that_is_read_counts(tmp_path: Any) -> None:
    """A comment is part of what such a function can see."""
    found = set()
    for number, comment in enumerate(("", "  # Why.")):
        path = tmp_path / f"module_{number}.py"
        path.write_text(
            f"import inspect\ndef function(x):\n    return inspect.getsource(function){comment}\n"
        )
        scope: dict[str, Any] = {"__name__": "a_module_of_the_user"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        found.add(code_digest(scope["function"]))
    assert len(found) == 2


class _Bare(ast.NodeTransformer):
    """Without docstrings and hints of functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return _undocumented(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        return _undocumented(node)


def _undocumented(node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return node


def on_one_line(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            place = {"lineno": 1, "end_lineno": 1, "col_offset": 0, "end_col_offset": 0}
            for name, value in place.items():
                setattr(node, name, value)
    return tree


def bare(tree: ast.Module) -> ast.Module:
    changed: ast.Module = ast.fix_missing_locations(_Bare().visit(tree))
    return changed


def written_anew(tree: ast.Module) -> ast.Module:
    return ast.parse(ast.unparse(tree))


def shapes(code: CodeType) -> Iterator[tuple[Any, ...]]:
    """The steps of all functions and classes of a module, without where they are nested."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_name, _shape(constant)


def _shape(code: CodeType) -> tuple[Any, ...]:
    return tuple(
        (
            step.operation,
            step.argument,
            step.edges,
            _shape(step.constant) if isinstance(step.constant, CodeType) else step.constant,
        )
        for step in steps_of(code)
    )


@pytest.mark.parametrize("change", [on_one_line, bare, written_anew])
@pytest.mark.parametrize("module", [bisect, heapq, json.decoder, shlex, statistics, textwrap])
def test_real_code_is_the_same_however_it_is_written(module: ModuleType, change: Any) -> None:
    source = inspect.getsource(module)
    one = compile(source, "one.py", "exec", dont_inherit=True)
    other = compile(change(ast.parse(source)), "other.py", "exec", dont_inherit=True)
    assert list(shapes(one)) == list(shapes(other))
