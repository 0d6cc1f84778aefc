"""Arrow types as Geneva's client writes them: Lance's names, and pyarrow's notation for the others."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from tidemill.protocols.lance.arrow_types import parse_type

PRINTED: Final = re.compile(r"(?P<family>[a-z_]+)(?P<width>[0-9]*)[\[(](?P<arguments>[^\])]*)[\])]")


def geneva_type(given: Any, field: str) -> pa.DataType:
    """Reads a type from JSON; raises InvalidInput."""
    return parse_type(_with_lance_names(given), field)


def _with_lance_names(given: Any, depth: int = 0) -> Any:
    """Converts all names to Lance's. Leaves what it cannot read to the parser, which reports it."""
    if isinstance(given, str):
        return _lance_name(given)
    if not isinstance(given, dict) or depth > 64:
        return given
    renamed = {**given, "type": _with_lance_names(given.get("type"), depth + 1)}
    if isinstance(given.get("fields"), list):
        renamed["fields"] = [
            {**field, "type": _with_lance_names(field.get("type"), depth + 1)}
            if isinstance(field, dict)
            else field
            for field in given["fields"]
        ]
    return renamed


def _lance_name(text: str) -> str:
    found = PRINTED.fullmatch(text)
    if found is None:
        return text
    arguments = [argument.strip().removeprefix("tz=") for argument in found["arguments"].split(",")]
    if found["family"] == "decimal":
        return ":".join(["decimal", found["width"], *arguments])
    return ":".join([found["family"] + found["width"], *arguments])
