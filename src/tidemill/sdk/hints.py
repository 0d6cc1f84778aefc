"""Type hints read as Arrow types."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Generator as GeneratorType
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
import pyarrow as pa

PLAIN_TYPES: Final[Mapping[Any, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us"),
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
}
SEQUENCES: Final = (list, Sequence)
ROW_SOURCES: Final = (list, Iterable, Iterator, GeneratorType, Sequence)
READABLE: Final = (
    "bool, int, float, str, bytes, datetime, a numpy scalar, list[X], X | None, NamedTuple or dataclass"
)


class UnreadableHint(TypeError):
    """A hint from which no Arrow type follows; says what would be right."""


def arrow_type(hint: Any, scope: Mapping[str, Any]) -> pa.DataType:
    """The Arrow type of values with that hint; names inside it are looked up in `scope`."""
    if isinstance(hint, pa.DataType):
        return hint
    if hint in PLAIN_TYPES:
        return PLAIN_TYPES[hint]
    if isinstance(hint, NewType):
        return arrow_type(hint.__supertype__, scope)
    if isinstance(hint, type) and not get_args(hint):
        return _class_type(hint, scope)
    return _generic_type(hint, scope)


def row_schema(hint: Any, scope: Mapping[str, Any]) -> pa.Schema:
    """The columns a chunker yields, from a hint such as `Iterator[Passage]`."""
    row = yielded(hint)
    if not (is_named_tuple(row) or is_typeddict(row)):
        raise UnreadableHint(f"{describe(row)} does not name columns; use a NamedTuple or a TypedDict")
    return pa.schema(_fields(row, scope))


def yielded(hint: Any) -> Any:
    """What comes out of something with a hint such as `Iterator[Passage]`."""
    arguments = get_args(hint)
    if get_origin(hint) not in ROW_SOURCES or not arguments:
        raise UnreadableHint(f"{describe(hint)} does not say what is yielded; use Iterator[SomeNamedTuple]")
    return arguments[0]


def class_schema(row: Any, scope: Mapping[str, Any]) -> pa.Schema:
    """The columns of rows that are NamedTuples, TypedDicts or dataclasses."""
    if not (is_named_tuple(row) or is_typeddict(row) or is_dataclass_type(row)):
        raise UnreadableHint(f"{describe(row)} does not name columns; use a NamedTuple or a dataclass")
    return pa.schema(_fields(row, scope))


def is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def is_dataclass_type(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def has_dataclass(hint: Any) -> bool:
    """Whether values with that hint hold dataclass instances, which Arrow cannot convert."""
    if is_dataclass_type(hint):
        return True
    return any(has_dataclass(argument) for argument in get_args(hint))


def describe(hint: Any) -> str:
    """A hint as people write it."""
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _class_type(hint: type, scope: Mapping[str, Any]) -> pa.DataType:
    if is_named_tuple(hint) or is_typeddict(hint) or dataclasses.is_dataclass(hint):
        return pa.struct(_fields(hint, scope))
    if issubclass(hint, np.generic):
        return _numpy_type(hint)
    if issubclass(hint, Decimal):
        raise UnreadableHint(
            "Decimal has no precision and scale; give output=pa.decimal128(precision, scale)"
        )
    if issubclass(hint, np.ndarray):
        raise UnreadableHint(
            "ndarray does not say of what; use list[float], or give output=pa.list_(pa.float32(), n)"
        )
    if issubclass(hint, list | dict | tuple | set):
        raise UnreadableHint(
            f"{hint.__name__} does not say of what; use list[X], a NamedTuple or a dataclass"
        )
    raise UnreadableHint(f"{describe(hint)} has no Arrow type; use {READABLE}, or give output=")


def _generic_type(hint: Any, scope: Mapping[str, Any]) -> pa.DataType:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marked = [extra for extra in hint.__metadata__ if isinstance(extra, pa.DataType)]
        return marked[0] if marked else arrow_type(arguments[0], scope)
    if origin in (Union, types.UnionType):
        return _optional_type(hint, arguments, scope)
    if origin in SEQUENCES and len(arguments) == 1:
        return pa.list_(arrow_type(arguments[0], scope))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return pa.list_(arrow_type(arguments[0], scope))
    if origin is Literal:
        return _literal_type(hint, arguments, scope)
    raise UnreadableHint(f"{describe(hint)} has no Arrow type; use {READABLE}, or give output=")


def _optional_type(hint: Any, arguments: tuple[Any, ...], scope: Mapping[str, Any]) -> pa.DataType:
    present = [argument for argument in arguments if argument is not type(None)]
    if len(present) != 1:
        raise UnreadableHint(f"{describe(hint)} is several types; a column has one, so use X or X | None")
    return arrow_type(present[0], scope)


def _literal_type(hint: Any, arguments: tuple[Any, ...], scope: Mapping[str, Any]) -> pa.DataType:
    kinds = {type(argument) for argument in arguments if argument is not None}
    if len(kinds) != 1:
        raise UnreadableHint(f"{describe(hint)} is several types; a column has one")
    return arrow_type(kinds.pop(), scope)


def _numpy_type(hint: type[np.generic]) -> pa.DataType:
    try:
        return pa.from_numpy_dtype(np.dtype(hint))
    except (pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise UnreadableHint(f"numpy.{hint.__name__} has no Arrow type; use float, int or str") from error


def _fields(row: type, scope: Mapping[str, Any]) -> list[pa.Field]:
    try:
        hints = get_type_hints(row, localns=dict(scope), include_extras=True)
    except NameError as error:
        raise UnreadableHint(f"{describe(row)} has a hint that cannot be found: {error}") from error
    names = list(getattr(row, "_fields", hints))
    untyped = [name for name in names if name not in hints]
    if untyped or not names:
        raise UnreadableHint(
            f"{describe(row)} needs a type hint for {', '.join(untyped) or 'at least one field'}"
        )
    return [pa.field(name, arrow_type(hints[name], scope)) for name in names]
