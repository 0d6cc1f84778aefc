"""Arrow types as lancedb's functions write them: short names, or JSON for complex types."""

from __future__ import annotations

import re
from typing import Final

import orjson
import pyarrow as pa

from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.lance.arrow_types import PLAIN_TYPES, parse_type

LISTS: Final = re.compile(r"(?P<family>list|large_list|fixed_size_list)<(?P<inside>.*)>")
SIZED: Final = re.compile(r"(?P<item>.+),\s*(?P<length>[0-9]{1,10})")
BLOB: Final = "blob_v2"
MAX_DEPTH: Final = 20


def function_type(text: str, field: str, depth: int = 0) -> pa.DataType:
    """Reads a type of a signature; raises InvalidInput."""
    if text == BLOB:
        raise Unsupported(f"{field}: blobs are not supported in functions yet; use binary")
    if text.startswith("{"):
        return _json_type(text, field)
    if text in PLAIN_TYPES:
        return PLAIN_TYPES[text]
    matched = LISTS.fullmatch(text)
    if matched is None or depth > MAX_DEPTH:
        raise InvalidInput(field, f"{text!r:.80} is not a known type")
    return _list_type(matched["family"], matched["inside"], field, depth)


def _json_type(text: str, field: str) -> pa.DataType:
    try:
        return parse_type(orjson.loads(text), field)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not a type as JSON ({error})") from error


def _list_type(family: str, inside: str, field: str, depth: int) -> pa.DataType:
    """The short form has only the type of the items, which cannot be null."""
    if family != "fixed_size_list":
        item = pa.field("item", function_type(inside, field, depth + 1), nullable=False)
        return pa.list_(item) if family == "list" else pa.large_list(item)
    sized = SIZED.fullmatch(inside)
    length = 0 if sized is None else int(sized["length"])
    if sized is None or not 0 < length < 2**31:
        raise InvalidInput(field, f"'fixed_size_list<{inside:.60}>' must have an item type and a length")
    item = pa.field("item", function_type(sized["item"].strip(), field, depth + 1), nullable=False)
    return pa.list_(item, length)
