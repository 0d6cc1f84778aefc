"""Writes the tables of job options into docs/protocols/management.md, from their declarations."""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from tidemill.jobs.model.declarations import Option, options_of
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "protocols" / "management.md"
BLOCK: Final = re.compile(
    r"(<!-- options of a (\w+): written by make docs -->\n).*?(<!-- end of options -->)", re.S
)
REQUESTS: Final[Mapping[str, type]] = {
    "backfill": BackfillRequest,
    "preview": PreviewRequest,
    "refresh": RefreshRequest,
    "verification": VerifyRequest,
    "policy": ErrorPolicy,
}
JSON_TYPES: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    tuple[str, ...]: "list of strings",
}


def table(kind: type) -> str:
    rows = [row for option in options_of(kind) for row in _rows(option)]
    return "\n".join(map(_line, [("field", "type", "default", "meaning", "since"), ("---",) * 5, *rows]))


def _rows(option: Option) -> Iterable[tuple[str, ...]]:
    names = f"`{option.name}`" if option.alias is None else f"`{option.name}` or `{option.alias}`"
    yield names, _type(option), _default(option), option.meaning, option.since
    if option.shorthand is not None:
        same = f"{option.shorthand.help} The same as `{option.name}`: `{option.shorthand.value.value}`."
        yield f"`{option.shorthand.name}`", "boolean", "`false`", same, option.since


def _type(option: Option) -> str:
    if option.kind is ErrorPolicy:
        return "name or object, see [error policies](#error-policies)"
    if isinstance(option.kind, type) and issubclass(option.kind, Enum):
        return ", ".join(f"`{choice.value}`" for choice in option.kind)
    if option.kind not in (int, float):
        return JSON_TYPES[option.kind]
    bounds = (
        f"at least {option.minimum}" if option.maximum is None else f"{option.minimum} to {option.maximum}"
    )
    return f"{JSON_TYPES[option.kind]}, {bounds}"


def _default(option: Option) -> str:
    if option.is_required:
        return "required"
    if isinstance(option.default, int | float | str):
        return f"`{option.default}`"
    return ""


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def updated(page: str) -> str:
    return BLOCK.sub(lambda found: f"{found[1]}{table(REQUESTS[found[2]])}\n{found[3]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the page is stale")
    only_check = parser.parse_args().check
    page = PAGE.read_text()
    wanted = updated(page)
    missing = set(REQUESTS) - {found[2] for found in BLOCK.finditer(page)}
    if missing:
        sys.exit(f"{PAGE.name} has no table of the options of a {', '.join(sorted(missing))}")
    if not only_check:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.exit(f"{PAGE.name} does not show the options as they are: run 'make docs' and commit the page")


if __name__ == "__main__":
    main()
