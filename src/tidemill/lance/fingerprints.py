"""Fingerprints: what a function was given and what it returned, as 64 bits per result.

Whether a value is right depends on nothing but the inputs it was computed from. So a job keeps, for every
row it computes, a hash over the values of the inputs and of the result. Later a row is up to date if the
values it holds *now* have one of the hashes kept for the function. No earlier version of the table is needed
for that, nor does it matter how the values came to the row: a clean-up, a restore, a branch, an overwrite
with the same values or a value that was changed and changed back make nothing stale that is not.

Fingerprints lie in files of their own ("segments"), because a table may have billions of rows: eight bytes
per result, in any order: sorting them would take longer than hashing. Segments are never changed;
`merge_segments` keeps their number small. A segment that is lost costs function calls, never a wrong value.

Values are compared by their bits and types: -0.0 is not 0.0, NaN equals itself, and 1 as an int32 is not 1 as
an int64. Two different values have the same hash with a probability of 2**-64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import uuid4

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from tidemill.storage.warehouse import open_location

Hashes: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Segments hold hashes made with these: changing them makes every value look stale once.
FIRST_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR: Final = np.uint64(0x94D049BB133111EB)
WORD_FACTOR: Final = np.uint64(0x5851F42D4C957F2D)
# Stands for a hash that was not kept.
NO_HASH: Final = np.uint64(0)
NULL_HASH: Final = np.uint64(0x9AE16A3B2F90404F)
WORD: Final = 8
# Number of bytes of text or binary values that are hashed at a time.
CHUNK_BYTES: Final = 4 << 20

SUFFIX: Final = ".fingerprints"
ROW_ID: Final = "_rowid"
WHOLE_BLOBS: Final = "all_binary"
OPEN_SEGMENTS: Final = 32
MAX_SEGMENTS: Final = 16
# Results of the past are kept as well, as long as there are no more than this many for each row.
ENTRIES_PER_ROW: Final = 2
FEW_ENTRIES: Final = 100_000
# Looking up fewer results than this share of the known ones takes less time than sorting those.
FEW_SHARE: Final = 64


def fingerprints(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """One hash per row over the values of the columns, in their order."""
    result = np.zeros(len(columns[0]), dtype=np.uint64)
    for number, column in enumerate(columns):
        array = _single(column)
        if number:
            result *= WORD_FACTOR
        result += _hashes(array)
        result += np.uint64(_text_hash(str(array.type)))
        _mix(result)
    return result


class SetFingerprint:
    """A hash over rows in whatever order they come; the same row twice is not the same as once."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = np.zeros(1, dtype=np.uint64)

    def add(self, hashes: Hashes) -> None:
        """Adds rows, given the fingerprint of each."""
        self.rows += len(hashes)
        self._sum += hashes.sum(dtype=np.uint64)

    @property
    def value(self) -> Hashes:
        """As an array of one hash."""
        return paired(self._sum, np.array([self.rows], dtype=np.uint64))


def _single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


@lru_cache(maxsize=256)
def _text_hash(text: str) -> int:
    return int(_bytes_hashes(pa.array([text.encode()], pa.large_binary()))[0])


def _hashes(array: pa.Array) -> Hashes:
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    if isinstance(array, pa.ExtensionArray):
        return _hashes(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _hashes(array.dictionary_decode())
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL_HASH, dtype=np.uint64)
    hashes = _value_hashes(array)
    if not array.null_count:
        return hashes
    return np.where(array.is_null().to_numpy(zero_copy_only=False), NULL_HASH, hashes)


def _value_hashes(array: pa.Array) -> Hashes:
    """Of valid values; what stands for nulls does not matter."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = array.flatten()
        return fingerprints(fields) if fields else np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_fixed_size_list(kind):
        return _fixed_list_hashes(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _list_hashes(array)
    if _is_bytes(kind):
        return _bytes_hashes(array.cast(pa.large_binary()))
    bits = _bits(array)
    if bits is not None:
        return _mixed(bits)
    return _bytes_hashes(pa.array([repr(value).encode() for value in array.to_pylist()], pa.large_binary()))


def _is_bytes(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(check(kind) for check in (*texts, *binaries, pa.types.is_fixed_size_binary))


def _bits(array: pa.Array) -> Hashes | None:
    """The values as numbers, bit by bit; None if they have another width."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif not pa.types.is_primitive(kind) or kind.bit_width not in (8, 16, 32, 64):
        return None
    width = array.type.bit_width // 8
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=np.uint64)
    values = np.frombuffer(data, dtype=f"<u{width}", count=len(array), offset=array.offset * width)
    return values.astype(np.uint64, copy=False)


def _fixed_list_hashes(array: pa.FixedSizeListArray) -> Hashes:
    """Vectors are hashed like bytes: per row a sequence of the same length."""
    size, kind = array.type.list_size, array.type.value_type
    values = array.values.slice(array.offset * size, len(array) * size)
    is_plain = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and not values.null_count
    row_bytes = size * (kind.bit_width // 8) if is_plain else 0
    if row_bytes and row_bytes % WORD == 0:
        data = np.frombuffer(values.buffers()[1], dtype=np.uint8)
        start = values.offset * (kind.bit_width // 8)
        words = data[start : start + len(array) * row_bytes].view("<u8").reshape(len(array), -1)
        return _mixed(_mixed(words) @ _powers(words.shape[1]))
    starts = np.arange(len(array) + 1, dtype=np.int64) * size
    return _sequence_hashes(_hashes(values), starts)


def _list_hashes(array: pa.Array) -> Hashes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.keys if pa.types.is_map(array.type) else array.values
    inner = slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0])) if len(offsets) else slice(0, 0)
    hashes = _hashes(values.slice(inner.start, inner.stop))
    if pa.types.is_map(array.type):
        hashes = _mixed(hashes * WORD_FACTOR + _hashes(array.items.slice(inner.start, inner.stop)))
    return _sequence_hashes(hashes, offsets - inner.start)


def _sequence_hashes(values: Hashes, starts: npt.NDArray[np.int64]) -> Hashes:
    """Combines the hashes of the elements of each sequence, weighted by position so that order matters."""
    lengths = np.diff(starts)
    positions = np.arange(len(values)) - np.repeat(starts[:-1], lengths)
    weighted = values * _powers(int(lengths.max(initial=0)))[positions]
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(weighted, out=sums[1:])
    return _mixed((sums[starts[1:]] - sums[starts[:-1]]) ^ lengths.view(np.uint64))


def _powers(count: int) -> Hashes:
    return np.multiply.accumulate(np.full(max(count, 1), WORD_FACTOR))[:count]


def _bytes_hashes(array: pa.LargeBinaryArray) -> Hashes:
    """Takes the bytes of each value as words of 64 bits; many values at a time, but not all at once."""
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data or b"", dtype=np.uint8)
    parts: list[Hashes] = []
    first = 0
    while first < len(array):
        end = int(np.searchsorted(starts, starts[first] + CHUNK_BYTES, side="right")) - 1
        end = min(max(end, first + 1), len(array))
        parts.append(_chunk_hashes(content[starts[first] : starts[end]], np.diff(starts[first : end + 1])))
        first = end
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunk_hashes(content: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> Hashes:
    counts = -(-lengths // WORD)
    word_starts = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.arange(word_starts[-1]) - np.repeat(word_starts[:-1], counts)
    begins = np.repeat(np.cumsum(lengths) - lengths, counts) + numbers * WORD
    padded = np.concatenate([content, np.zeros(WORD, dtype=np.uint8)])
    # A word may begin at any byte.
    words = np.ndarray((len(content) + 1,), dtype="<u8", buffer=padded, strides=(1,))[begins]
    left = np.repeat(lengths, counts) - numbers * WORD
    unused = np.clip(WORD - left, 0, WORD - 1).astype(np.uint64) * np.uint64(8)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> unused
    return _sequence_hashes(_mixed(words), word_starts) + lengths.view(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Every bit of a value affects every bit of the hash."""
    mixed = values.copy()
    _mix(mixed)
    return mixed


def _mix(values: Hashes) -> None:
    """In place: arrays as large as these take longer to allocate than to compute with."""
    shifted = values >> np.uint64(32)
    values ^= shifted
    values *= FIRST_FACTOR
    np.right_shift(values, np.uint64(29), out=shifted)
    values ^= shifted
    values *= SECOND_FACTOR
    np.right_shift(values, np.uint64(32), out=shifted)
    values ^= shifted


def input_hashes(
    dataset: lance.LanceDataset, row_ids: Hashes, expressions: Sequence[str]
) -> tuple[Hashes, Hashes]:
    """Those of the rows that exist, and the hashes of what a function is given for them."""
    columns = {f"i{number}": text for number, text in enumerate(expressions)}
    rows = dataset._take_rows(row_ids, columns={**columns, ROW_ID: ROW_ID}, blob_handling=WHOLE_BLOBS)
    return rows[ROW_ID].to_numpy(), fingerprints([rows[name] for name in columns])


def paired(inputs: Hashes, results: Hashes) -> Hashes:
    """The fingerprints of results, from the hashes of their inputs and their own."""
    hashes = inputs * WORD_FACTOR
    hashes += results
    _mix(hashes)
    return hashes


def write_segment(location: str, hashes: Hashes) -> str | None:
    """Writes fingerprints and returns the segment's path; None if there are none."""
    if not len(hashes):
        return None
    schema = pa.schema([pa.field("hash", pa.uint64())])
    filesystem, directory = open_location(location)
    filesystem.create_dir(directory)
    name = f"{uuid4()}{SUFFIX}"
    with (
        filesystem.open_output_stream(f"{directory}/{name}.tmp") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        writer.write_batch(pa.record_batch([pa.array(hashes)], schema=schema))
    filesystem.move(f"{directory}/{name}.tmp", f"{directory}/{name}")
    return f"{location}/{name}"


def list_segments(location: str) -> list[str]:
    filesystem, directory = open_location(location)
    files = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return [f"{location}/{info.base_name}" for info in files if info.base_name.endswith(SUFFIX)]


@lru_cache(maxsize=OPEN_SEGMENTS)
def read_segment(path: str) -> Hashes:
    """The hashes of a segment; a local file is mapped into memory."""
    filesystem, name = open_location(path)
    is_local = isinstance(filesystem, fs.LocalFileSystem)
    source = pa.memory_map(name) if is_local else filesystem.open_input_file(name)
    hashes: Hashes = _single(pa.ipc.open_file(source).read_all()["hash"]).to_numpy()
    return hashes


class KnownResults:
    """All fingerprints that are kept for a function; a segment that is gone counts as empty."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._segments = [hashes for path in paths if len(hashes := _found(path))]
        self._sorted: Hashes | None = None

    def match(self, hashes: Hashes) -> Mask:
        """Which of the results are known."""
        if not len(hashes) or not self._segments:
            return np.zeros(len(hashes), dtype=np.bool_)
        is_few = len(hashes) * FEW_SHARE < sum(map(len, self._segments))
        if self._sorted is None and is_few:
            return self._match_few(hashes)
        if self._sorted is None:
            self._sorted = np.sort(np.concatenate(self._segments))
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        found: Mask = self._sorted[places] == hashes
        return found

    def _match_few(self, hashes: Hashes) -> Mask:
        """Looks all known results up among the few that are asked for, which takes no sorting of the many."""
        wanted, places = np.unique(hashes, return_inverse=True)
        is_known = np.zeros(len(wanted), dtype=np.bool_)
        for known in self._segments:
            nearest = np.minimum(np.searchsorted(wanted, known), len(wanted) - 1)
            is_known[nearest[wanted[nearest] == known]] = True
        found: Mask = is_known[places]
        return found


def _found(path: str) -> Hashes:
    try:
        return read_segment(path)
    except FileNotFoundError:
        return np.empty(0, dtype=np.uint64)


def merge_segments(location: str, paths: Sequence[str], live_rows: int) -> tuple[str, ...]:
    """The same fingerprints in one segment once there are many of them.

    `paths` are in the order they were written. The oldest are dropped when there are more fingerprints than
    `ENTRIES_PER_ROW` for each of the table's rows: at once if a later job has computed every row, and else
    when segments are merged.
    """
    allowed = max(FEW_ENTRIES, ENTRIES_PER_ROW * live_rows)
    paths = _without_replaced(paths, live_rows, allowed)
    if len(paths) <= MAX_SEGMENTS:
        return tuple(paths)
    kept: list[Hashes] = []
    for path in reversed(paths):
        kept.append(_found(path))
        if sum(map(len, kept)) > allowed and len(kept) > 1:
            kept.pop()
            break
    merged = write_segment(location, np.unique(np.concatenate(kept)))
    return () if merged is None else (merged,)


def _without_replaced(paths: Sequence[str], live_rows: int, allowed: int) -> Sequence[str]:
    """Leaves out the oldest of too many if one that was written later has a result for every row."""
    if sum(map(_size, paths)) <= WORD * allowed:
        return paths
    entries = [len(_found(path)) for path in paths]
    while sum(entries) > allowed and max(entries[1:], default=0) >= max(live_rows, 1):
        paths, entries = paths[1:], entries[1:]
    return paths


def _size(path: str) -> int:
    filesystem, name = open_location(path)
    return int(filesystem.get_file_info(name).size or 0)


def remove_segments(paths: Iterable[str]) -> None:
    for path in paths:
        filesystem, name = open_location(path)
        if filesystem.get_file_info(name).type is not fs.FileType.NotFound:
            filesystem.delete_file(name)
