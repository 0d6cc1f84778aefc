"""Dataclasses stored as JSON objects: `asdict` writes them, and their types say how to read them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, get_origin, get_type_hints

from tidemill.jobs.model.options import without_none

ValueT = TypeVar("ValueT")


def value_of(kind: type[ValueT], stored: Mapping[str, Any]) -> ValueT:
    """What an older server did not store has its default; fields of a newer server are ignored."""
    readers = _readers(kind)  # type: ignore[arg-type]  # classes are hashable
    return kind(**{name: read(stored[name]) for name, read in readers.items() if name in stored})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _optional(_reader(without_none(hints[field.name]))) for field in fields(kind)}


def _reader(kind: Any) -> Callable[[Any], Any]:
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(value_of, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return tuple if get_origin(kind) is tuple else _as_it_is


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda stored: None if stored is None else read(stored)


def _as_it_is(stored: Any) -> Any:
    return stored
