"""Encodes row ids and deletions of fragments in Lance's format."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

from tidemill.storage.warehouse import open_location

# Field numbers of Lance's messages.
SEGMENT: Final = 1
RANGE: Final = 1
ARRAY: Final = 5
U32: Final = 2
IDS_PER_SEGMENT: Final = 1 << 16
# From this average run length on, ranges are the shorter encoding.
MIN_IDS_PER_RUN: Final = 4


def with_row_ids(fragment: FragmentMetadata, row_ids: npt.NDArray[np.uint64]) -> dict[str, Any]:
    """The JSON of a new fragment whose rows keep these existing ids."""
    described = _as_json(fragment)
    described["row_id_meta"] = {"Inline": list(encoded_row_ids(row_ids))}
    return described


def encoded_row_ids(row_ids: npt.NDArray[np.uint64]) -> bytes:
    """Lance's message for a sequence of ids: segments of ranges, or of offsets from the smallest id."""
    cuts = np.flatnonzero(np.diff(row_ids) != 1) + 1
    if len(cuts) < len(row_ids) // MIN_IDS_PER_RUN:
        return b"".join(_range_segment(ids) for ids in np.split(row_ids, cuts))
    parts = np.split(row_ids, range(IDS_PER_SEGMENT, len(row_ids), IDS_PER_SEGMENT))
    return b"".join(_offset_segment(ids) for ids in parts)


def _range_segment(ids: npt.NDArray[np.uint64]) -> bytes:
    return _message(SEGMENT, _message(RANGE, _number(1, int(ids[0])) + _number(2, int(ids[-1]) + 1)))


def _offset_segment(ids: npt.NDArray[np.uint64]) -> bytes:
    smallest = ids.min()
    if int(ids.max() - smallest) >= 1 << 32:
        return b"".join(_range_segment(ids[index : index + 1]) for index in range(len(ids)))
    values = (ids - smallest).astype("<u4").tobytes()
    return _message(SEGMENT, _message(ARRAY, _message(U32, _number(1, int(smallest)) + _message(2, values))))


def with_deletions(
    fragment: FragmentMetadata, location: str, version: int, deleted: BitMap
) -> FragmentMetadata:
    """The fragment with a new deletion file; `deleted` contains all deleted offsets, old and new."""
    number = secrets.randbits(62)
    filesystem, path = open_location(f"{location}/_deletions/{fragment.id}-{version}-{number}.bin")
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(deleted.serialize())
    described = _as_json(fragment)
    described["deletion_file"] = {
        "read_version": version,
        "id": number,
        "file_type": "bitmap",
        "num_deleted_rows": len(deleted),
        "base_id": None,
    }
    return FragmentMetadata.from_json(json.dumps(described))


def _as_json(fragment: FragmentMetadata) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(json.dumps(fragment.to_json()))
    return described


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
