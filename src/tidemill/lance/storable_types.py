"""Which Arrow types Lance can store and return unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa
from lance.arrow import BFloat16Type

from tidemill.errors import InvalidInput

Test = Callable[[pa.DataType], bool]

FLAT: Final[tuple[Test, ...]] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal128,
    pa.types.is_decimal256,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_fixed_size_binary,
)
# Without view types, which are returned as plain strings and bytes.
LONG: Final[tuple[Test, ...]] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
# Without half floats: Arrow corrupts them when it merges two dictionaries.
IN_DICTIONARIES: Final[tuple[Test, ...]] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    *LONG,
)
LISTS: Final[tuple[Test, ...]] = (pa.types.is_list, pa.types.is_large_list, pa.types.is_map)
# The first version of the file format with maps.
MAP_VERSION: Final = (2, 2)


def check_storable(fields: Sequence[pa.Field], version: str) -> None:
    """Raises InvalidInput if files of this version cannot store one of the fields."""
    for field in fields:
        fault = find_fault(field.type, version)
        if fault is not None:
            raise InvalidInput(
                "new_columns", f"'{field.name}' is {field.type}, which Lance cannot store: {fault}"
            )


def find_fault(data_type: pa.DataType, version: str) -> str | None:
    """Why files of this version cannot store the type; None if they can."""
    has_maps = tuple(int(number) for number in version.split(".")) >= MAP_VERSION
    faults = chain(_faults(data_type), () if has_maps else _map_faults(data_type, version))
    return next(faults, None)


def _faults(data_type: pa.DataType) -> Iterator[str]:
    """Faults of the type itself, then those of its parts."""
    if isinstance(data_type, pa.BaseExtensionType):
        yield from _faults(data_type.storage_type)
    elif pa.types.is_dictionary(data_type):
        yield from _dictionary_faults(data_type)
    elif pa.types.is_fixed_size_list(data_type):
        yield from _vector_faults(data_type)
    elif _matches_any(data_type, LISTS) or pa.types.is_struct(data_type):
        yield from _nested_faults(data_type)
    elif not _matches_any(data_type, FLAT + LONG):
        yield f"it does not support {data_type}{_suggestion(data_type)}"


def _dictionary_faults(data_type: pa.DictionaryType) -> Iterator[str]:
    if data_type.ordered:
        yield "it does not preserve that a dictionary is ordered; use an unordered one"
    if not _matches_any(data_type.value_type, IN_DICTIONARIES):
        yield f"it does not support dictionaries of {data_type.value_type}; use {data_type.value_type} itself"


def _nested_faults(data_type: pa.DataType) -> Iterator[str]:
    parts = _parts(data_type)
    names = [field.name for field in parts]
    if not parts:
        yield "it does not support structs without fields"
    if pa.types.is_struct(data_type) and len(set(names)) < len(names):
        yield "it does not support structs with two fields of the same name"
    if pa.types.is_map(data_type) and data_type.keys_sorted:
        yield "it does not preserve that the keys of a map are sorted; use one without keys_sorted"
    for field in parts:
        yield from _faults(field.type)


def _vector_faults(data_type: pa.FixedSizeListType) -> Iterator[str]:
    value = data_type.value_type
    if data_type.list_size < 1:
        yield "a vector needs at least one element"
    elif pa.types.is_fixed_size_list(value):
        yield from _vector_faults(value)
    elif pa.types.is_struct(value):
        yield "it cannot read vectors of structs beside other columns; use a list of them"
    elif not isinstance(value, BFloat16Type) and not _matches_any(value, FLAT):
        yield f"it does not support vectors of {value}; use a list of them"
    elif pa.types.is_fixed_size_binary(value) and not value.byte_width:
        yield "it does not support vectors of zero-width values"


def _map_faults(data_type: pa.DataType, version: str) -> Iterator[str]:
    if any(pa.types.is_map(part) for part in chain([data_type], _inside(data_type))):
        yield f"the table has files of version {version}, which do not support maps"


def _matches_any(data_type: pa.DataType, tests: Sequence[Test]) -> bool:
    return any(test(data_type) for test in tests)


def _parts(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(number) for number in range(data_type.num_fields)]


def _inside(data_type: pa.DataType) -> Iterator[pa.DataType]:
    """All types nested in a type."""
    stored = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    for field in _parts(stored) if pa.types.is_nested(stored) else []:
        yield field.type
        yield from _inside(field.type)


def _suggestion(data_type: pa.DataType) -> str:
    """A type that can hold the same values."""
    if pa.types.is_string_view(data_type):
        return "; use string"
    if pa.types.is_binary_view(data_type):
        return "; use binary"
    if pa.types.is_decimal(data_type):
        return f"; use decimal128({data_type.precision}, {data_type.scale})"
    if pa.types.is_run_end_encoded(data_type):
        return f"; use {data_type.value_type}"
    if pa.types.is_list_view(data_type) or pa.types.is_large_list_view(data_type):
        return f"; use a list of {data_type.value_type}"
    return ""
