"""Arrow types as Geneva's client writes them: Lance's names, and pyarrow's notation for the others."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from tidemill.protocols.lance.arrow_types import parse_type

PRINTED: Final = re.compile(r"(?P<family>[a-z_]+)(?P<width>[0-9]*)[\[(](?P<arguments>[^\])]*)[\])]")


def geneva_type(raw_type: Any, field: str) -> pa.DataType:
    """Reads a type from JSON; raises InvalidInput."""
    return parse_type(_with_lance_names(raw_type), field)


def _with_lance_names(raw_type: Any, depth: int = 0) -> Any:
    """Converts all names to Lance's. Leaves what it cannot read to the parser, which reports it."""
    if isinstance(raw_type, str):
        return _lance_name(raw_type)
    if not isinstance(raw_type, dict) or depth > 64:
        return raw_type
    renamed = {**raw_type, "type": _with_lance_names(raw_type.get("type"), depth + 1)}
    if isinstance(raw_type.get("fields"), list):
        renamed["fields"] = [
            {**field, "type": _with_lance_names(field.get("type"), depth + 1)}
            if isinstance(field, dict)
            else field
            for field in raw_type["fields"]
        ]
    return renamed


def _lance_name(text: str) -> str:
    matched = PRINTED.fullmatch(text)
    if matched is None:
        return text
    arguments = [argument.strip().removeprefix("tz=") for argument in matched["arguments"].split(",")]
    if matched["family"] == "decimal":
        return ":".join(["decimal", matched["width"], *arguments])
    return ":".join([matched["family"] + matched["width"], *arguments])
