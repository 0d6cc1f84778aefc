"""The rules for modules that no linter knows."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "tidemill"
MEANINGLESS_NAMES: Final = {"base", "common", "misc", "utils"}
PACKAGES_WITH_EXPORTS: Final = {"__init__.py"}
LONGEST_MODULE: Final = 500
# The HTTP boundary, the worker loop and the CLI's main: here an unknown failure becomes an answer.
# And where users' functions are called: whatever they raise is the row's failure. And what a query process
# raises, which the server raises again; and the thread that writes the audit, which has to go on.
LAST_RESORTS: Final = (
    "protocols/http/",
    "server/audit_trail",
    "server/worker",
    "cli/main.py",
    "functions/",
    "lance/evaluation/process.py",
)


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text()


def test_no_module_has_a_meaningless_name() -> None:
    parts = {part for name, _ in modules() for part in Path(name).with_suffix("").parts}
    assert parts & MEANINGLESS_NAMES == set()


def test_packages_hold_nothing_but_a_docstring_except_the_exports_of_the_sdk() -> None:
    assert [
        name
        for name, text in modules()
        if name.endswith("__init__.py") and name not in PACKAGES_WITH_EXPORTS and _has_code(text)
    ] == []


def test_every_package_at_the_top_introduces_itself() -> None:
    """Its rooms, what flows through it, and what it may import."""
    introductions = {
        name: len((ast.get_docstring(ast.parse(text)) or "").splitlines())
        for name, text in modules()
        if name.count("/") == 1 and name.endswith("__init__.py")
    }
    assert {name: lines for name, lines in introductions.items() if not 10 <= lines <= 30} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, text in modules() if not ast.get_docstring(ast.parse(text))] == []


def test_no_module_is_too_long() -> None:
    assert [name for name, text in modules() if len(text.splitlines()) > LONGEST_MODULE] == []


def test_only_the_last_resorts_swallow_any_exception() -> None:
    assert [
        f"{name}:{handler.lineno}"
        for name, text in modules()
        if not name.startswith(LAST_RESORTS)
        for handler in ast.walk(ast.parse(text))
        if isinstance(handler, ast.ExceptHandler) and _swallows_anything(handler)
    ] == []


def _has_code(text: str) -> bool:
    tree = ast.parse(text)
    return len(tree.body) > (ast.get_docstring(tree) is not None)


def _swallows_anything(handler: ast.ExceptHandler) -> bool:
    # Translating a failure and raising it again loses nothing.
    return _is_blind(handler.type) and not isinstance(handler.body[-1], ast.Raise)


def _is_blind(caught: ast.expr | None) -> bool:
    match caught:
        case None:
            return True
        case ast.Name(id="Exception" | "BaseException"):
            return True
        case ast.Tuple(elts=elements):
            return any(_is_blind(element) for element in elements)
        case _:
            return False
