"""What of a chunk's content tells it apart from the other chunks of its source row.

Chunks often carry where they are: a position, an offset, a page, a time, a box on the page. One inserted
sentence changes these numbers in all chunks behind it, although their text is the same. `row_matching`
therefore looks for the old row of a chunk by its identity, which leaves such numbers out.

Leaving out too much does no harm: rows with the same identity are still compared by value before anything is
kept, so the worst outcome is that two chunks with the same text swap their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Path: TypeAlias = tuple[str, ...]

ELEMENT: Final = "[]"
NUMBERS: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_null,
)
TEXTS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)
LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def identity_parts(name: str, column: pa.Array) -> Iterator[tuple[Path, pa.Array]]:
    """The identifying parts of a column by their paths: the column itself, parts of it, or nothing.

    Plain numbers, booleans and times are left out, also inside structs and lists of structs. A list of
    nothing but numbers stays: it may be a vector or the ids of tokens.
    """
    return _parts((name,), column)


def find_main_text(parts: Mapping[Path, tuple[pa.Array, pa.Array]]) -> Path | None:
    """The part with the longest texts (or other bytes) in two batches; None if no part has any."""
    sizes = {path: new.nbytes + old.nbytes for path, (new, old) in parts.items() if _is_any(TEXTS, new.type)}
    return max(sizes, key=lambda path: sizes[path]) if sizes else None


def _parts(path: Path, array: pa.Array) -> Iterator[tuple[Path, pa.Array]]:
    kind = array.type
    if _is_any(NUMBERS, kind):
        return
    if pa.types.is_struct(kind):
        for field, child in zip(kind, array.flatten(), strict=True):
            yield from _parts((*path, field.name), child)
    elif _is_any(LISTS, kind) and pa.types.is_nested(kind.value_type):
        yield from _list_parts(path, array)
    else:
        yield path, array


def _list_parts(path: Path, array: pa.Array) -> Iterator[tuple[Path, pa.Array]]:
    """A list for each identifying part of the elements, or the list itself if they have none."""
    parts = list(_parts((*path, ELEMENT), array.flatten()))
    if not parts:
        yield path, array
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for part, values in parts:
        yield part, pa.LargeListArray.from_arrays(pa.array(ends), values)


def _is_any(checks: Iterable[Callable[[pa.DataType], bool]], kind: pa.DataType) -> bool:
    return any(check(kind) for check in checks)
