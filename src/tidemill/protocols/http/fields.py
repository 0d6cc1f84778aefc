"""Reads and checks fields of JSON bodies and query strings.

Types are checked strictly, so that a wrong value returns 400 with the name of the field instead of failing
deep inside an operation. Reading is lenient where real clients differ: an empty body and `null` are an empty
object, a null field is a missing one, and enum values are accepted in any case and with underscores. Strings
that a database could not store (NUL, lone surrogates), deep nesting and long expressions are rejected here,
because the code behind would fail on them in its own way, or recurse too deeply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson
from starlette.datastructures import QueryParams

from tidemill.catalog.model.identifiers import (
    NamespacePath,
    TableIdent,
    namespace_path,
    table_ident,
)
from tidemill.catalog.model.json_values import (
    Choice,
    checked_expression,
    checked_flag,
    checked_integer,
    checked_number,
    checked_text,
    checked_texts,
    read_choice,
)
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call

MAX_JSON_DEPTH: Final = 64
FLAGS: Final[Mapping[str, bool]] = {"true": True, "1": True, "false": False, "0": False}


def read_object(body: bytes) -> Fields:
    """Reads a JSON object. Clients also send nothing or `null` where the specification requires a body."""
    if not body.strip():
        return Fields({})
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput("body", f"is not JSON ({error})") from error
    if value is None:
        return Fields({})
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a JSON object")
    if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH:
        _check_depth(value)
    return Fields(value)


class Fields:
    """A JSON object whose values are checked as they are read. A null value counts as missing."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    @property
    def values(self) -> Mapping[str, Any]:
        """The raw values, for callers that check them themselves."""
        return self._values

    def name_of(self, key: str) -> str:
        return f"{self._prefix}.{key}" if self._prefix else key

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        return None if value is None else checked_text(value, self.name_of(key))

    def required_text(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise InvalidInput(self.name_of(key), "is missing; it must be a non-empty string")
        return value

    def expression(self, key: str) -> str | None:
        """Text in the query language. Its length is limited, so that it can be parsed safely."""
        value = self.text(key)
        return None if value is None else checked_expression(value, self.name_of(key))

    def integer(self, key: str, minimum: int) -> int | None:
        value = self.raw(key)
        return None if value is None else checked_integer(value, self.name_of(key), minimum)

    def required_integer(self, key: str, minimum: int) -> int:
        value = self.integer(key, minimum)
        if value is None:
            raise InvalidInput(self.name_of(key), f"is missing; it must be an integer of at least {minimum}")
        return value

    def number(self, key: str, minimum: float) -> float | None:
        value = self.raw(key)
        return None if value is None else checked_number(value, self.name_of(key), minimum)

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        return None if value is None else checked_flag(value, self.name_of(key))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.raw(key)
        return None if value is None else checked_texts(value, self.name_of(key))

    def texts_by_name(self, key: str) -> dict[str, str] | None:
        value = self.raw(key)
        return None if value is None else text_mapping(value, self.name_of(key))

    def choice(self, key: str, default: Choice) -> Choice:
        value = self.text(key)
        return default if value is None else read_choice(type(default), value, self.name_of(key))

    def nested(self, key: str) -> Fields | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidInput(self.name_of(key), "must be a JSON object")
        return Fields(value, self.name_of(key))

    def objects(self, key: str) -> tuple[Fields, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise InvalidInput(self.name_of(key), "must be a list of JSON objects")
        return tuple(Fields(entry, f"{self.name_of(key)}[{index}]") for index, entry in enumerate(value))

    def refuse_unknown(self, known: Collection[str]) -> None:
        for key, value in self._values.items():
            if key not in known and value is not None:
                raise InvalidInput(self.name_of(key)[:200], "is not a known field; leave it out")

    def refuse_given(self, *keys: str) -> None:
        """Rejects options of the specification that we do not support, instead of ignoring them silently."""
        for key in keys:
            if self.raw(key) not in (None, {}, [], ""):
                raise InvalidInput(self.name_of(key), "is not supported yet; leave it out")


def text_mapping(value: Any, field: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidInput(field, "must be an object of strings")
    return {
        checked_text(key, field): checked_text(entry, f"{field}.{key}"[:200]) for key, entry in value.items()
    }


def query_integer(query: QueryParams, key: str) -> int | None:
    value = query.get(key)
    if value is None or value == "":
        return None
    # `int` alone would accept underscores, spaces and digits of other scripts.
    if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit() or len(value) > 19:
        raise InvalidInput(key, f"must be an integer, not {value!r:.60}")
    return int(value)


def query_flag(query: QueryParams, key: str) -> bool | None:
    value = query.get(key)
    if value is None or value == "":
        return None
    if value.lower() not in FLAGS:
        raise InvalidInput(key, f"must be true or false, not {value!r:.60}")
    return FLAGS[value.lower()]


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidInput("body", f"is nested more than {MAX_JSON_DEPTH} levels deep")


DEFAULT_DELIMITER: Final = "$"
MAX_DELIMITER_LENGTH: Final = 16


def delimiter_of(call: Call) -> str:
    delimiter = call.query.get("delimiter", DEFAULT_DELIMITER)
    if not delimiter or len(delimiter) > MAX_DELIMITER_LENGTH:
        raise InvalidInput("delimiter", f"must have 1 to {MAX_DELIMITER_LENGTH} characters")
    return delimiter


def split_id(raw: str, delimiter: str) -> tuple[str, ...]:
    """The levels of an id. The delimiter alone is the root."""
    return () if raw == delimiter else tuple(raw.split(delimiter))


def levels_of(call: Call) -> tuple[str, ...]:
    """The levels of the id in the path. Without an id it is the root, because URL libraries remove `/./`."""
    raw = call.parameters.get("id")
    return () if raw is None else split_id(raw, delimiter_of(call))


def namespace_of(call: Call) -> NamespacePath:
    return namespace_path(levels_of(call))


def table_of(call: Call) -> TableIdent:
    return table_ident(levels_of(call))
