"""Manifests as Lance writes them are read and accepted; damaged and greedy ones are refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa
import pytest

from tidemill.errors import InvalidInput
from tidemill.lance.versions.manifest_format import (
    KNOWN_FLAGS,
    DamagedManifest,
    FeatureFlag,
    check_staged,
    read_field_ids,
    read_manifest,
)

TAIL_BYTES = 16
VERSION, READER_FLAGS, WRITER_FLAGS, BRANCH = 3, 9, 10, 20
FRAGMENTS, INDEX_SECTION, TRANSACTION_FILE, BASE_PATHS = 2, 6, 12, 18


def rows(count: int) -> pa.Table:
    return pa.table({"id": list(range(count)), "text": [str(number) for number in range(count)]})


def manifest_bytes(table: Path, version: int) -> bytes:
    return (table / "_versions" / f"{2**64 - 1 - version}.manifest").read_bytes()


def allow_all(_: str) -> bool:
    return True


def allow_none(_: str) -> bool:
    return False


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def manifest_of(*fields: bytes, before: bytes = b"") -> bytes:
    message = b"".join(fields)
    return (
        before + struct.pack("<I", len(message)) + message + struct.pack("<QHH4s", len(before), 0, 2, b"LANC")
    )


def extended(data: bytes, *fields: bytes) -> bytes:
    """The manifest with more fields; of a field that comes twice protobuf takes the last."""
    (position,) = struct.unpack_from("<Q", data, len(data) - TAIL_BYTES)
    message = data[position + 4 : -TAIL_BYTES] + b"".join(fields)
    return data[:position] + struct.pack("<I", len(message)) + message + data[-TAIL_BYTES:]


def fragment_with(path: str) -> bytes:
    return bytes_field(FRAGMENTS, bytes_field(2, bytes_field(1, path.encode())))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 rows, 2 deletions, 3 an index, 4 config; branch `dev` from 4 with one more commit."""
    path = tmp_path_factory.mktemp("manifests") / "t"
    dataset = lance.write_dataset(rows(300), path, enable_stable_row_ids=True)
    dataset.delete("id = 3")
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"kept": "yes"})
    lance.write_dataset(rows(2), dataset.create_branch("dev"), mode="append")
    return path


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_lance_writes_on_the_main_branch_is_accepted(table: Path, version: int) -> None:
    check_staged(manifest_bytes(table, version), version, "main", allow_none)


@pytest.mark.parametrize("version", [4, 5])
def test_what_lance_writes_on_a_branch_is_accepted_with_the_root_as_base(table: Path, version: int) -> None:
    data = manifest_bytes(table / "tree" / "dev", version)
    check_staged(data, version, "dev", lambda path: path == str(table))
    with pytest.raises(InvalidInput, match="reads from"):
        check_staged(data, version, "dev", allow_none)


def test_a_manifest_says_what_lance_says(table: Path) -> None:
    manifest = read_manifest(manifest_bytes(table, 4))
    dataset = lance.dataset(table, version=4)
    files = [file.path for fragment in dataset.get_fragments() for file in fragment.metadata.files]
    assert manifest.version == 4
    assert list(manifest.data_paths) == files
    assert manifest.has_stable_row_ids
    assert manifest.next_row_id == 300
    assert manifest.branch is None
    assert manifest.writer_flags == (
        FeatureFlag.DELETION_FILES | FeatureFlag.STABLE_ROW_IDS | FeatureFlag.TABLE_CONFIG
    )
    written_at = dataset.versions()[3]["timestamp"]
    assert isinstance(written_at, datetime)
    assert manifest.timestamp_millis == int(written_at.timestamp() * 1000)
    assert "page_data.lance" in manifest.other_paths


def test_a_shallow_clone_reads_from_its_source(table: Path, tmp_path: Path) -> None:
    lance.dataset(table).shallow_clone(str(tmp_path / "clone"), 4)
    data = manifest_bytes(tmp_path / "clone", 4)
    assert read_manifest(data).base_paths == (str(table),)
    check_staged(data, 4, "main", lambda path: path == str(table))
    with pytest.raises(InvalidInput, match="reads from"):
        check_staged(data, 4, "main", allow_none)


@pytest.mark.parametrize("storage_version", ["legacy", "2.0", "2.1", "2.2"])
def test_every_storage_version_and_a_compaction_are_accepted(
    tmp_path: Path, storage_version: Literal["legacy", "2.0", "2.1", "2.2"]
) -> None:
    for mode in ("create", "append"):
        dataset = lance.write_dataset(
            rows(9), tmp_path / "t", mode=mode, data_storage_version=storage_version
        )
    dataset.create_scalar_index("text", "INVERTED")
    dataset.optimize.compact_files(defer_index_remap=True)
    for version in range(1, dataset.version + 1):
        check_staged(manifest_bytes(tmp_path / "t", version), version, "main", allow_none)


def test_another_version_or_branch_is_refused(table: Path) -> None:
    with pytest.raises(InvalidInput, match="manifest_path: is a manifest of version 3, not of version 4"):
        check_staged(manifest_bytes(table, 3), 4, "main", allow_all)
    with pytest.raises(InvalidInput, match="branch 'main', not of branch 'dev'"):
        check_staged(manifest_bytes(table, 4), 4, "dev", allow_all)
    with pytest.raises(InvalidInput, match="branch 'dev', not of branch 'main'"):
        check_staged(manifest_bytes(table / "tree" / "dev", 4), 4, "main", allow_all)


@pytest.mark.parametrize("side", [READER_FLAGS, WRITER_FLAGS])
@pytest.mark.parametrize("flag", [1 << bit for bit in range(64)])
def test_only_known_feature_flags_are_accepted(table: Path, side: int, flag: int) -> None:
    data = extended(manifest_bytes(table, 1), number_field(side, flag))
    if flag & KNOWN_FLAGS:
        check_staged(data, 1, "main", allow_none)
        return
    with pytest.raises(InvalidInput, match=f"feature flags {flag}"):
        check_staged(data, 1, "main", allow_none)


@pytest.mark.parametrize("flag", [flag for flag in FeatureFlag if flag is not FeatureFlag.STABLE_ROW_IDS])
def test_a_known_flag_is_one_that_lance_reads(tmp_path: Path, flag: int) -> None:
    lance.write_dataset(rows(1), tmp_path / "t")
    path = tmp_path / "t" / "_versions" / f"{2**64 - 2}.manifest"
    path.write_bytes(
        extended(path.read_bytes(), number_field(READER_FLAGS, flag), number_field(WRITER_FLAGS, flag))
    )
    assert lance.dataset(tmp_path / "t").count_rows() == 1


def test_overlay_files_are_refused_by_flag_and_by_presence(table: Path) -> None:
    flagged = extended(manifest_bytes(table, 1), number_field(READER_FLAGS, 64))
    present = extended(manifest_bytes(table, 1), bytes_field(FRAGMENTS, bytes_field(11, b"")))
    for data in (flagged, present):
        with pytest.raises(InvalidInput, match="manifest_path"):
            check_staged(data, 1, "main", allow_none)


OUTSIDE = [
    "",
    "/etc/passwd",
    "../other/data/x.lance",
    "a/../../x.lance",
    "a/./x.lance",
    "a//x.lance",
    "s3://bucket/x.lance",
    "file:///etc/passwd",
    "http://169.254.169.254/x",
    "C:\\x.lance",
    "..\\x.lance",
    "%2e%2e/x.lance",
    "x\x00.lance",
    "x\n.lance",
    "~/x/..",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_file_outside_the_table_is_refused_wherever_it_stands(table: Path, path: str) -> None:
    file = bytes_field(1, path.encode())
    index = bytes_field(1, bytes_field(10, file))
    details = bytes_field(1, b"type/lance.table.FragmentReuseIndexDetails") + bytes_field(
        2, bytes_field(2, file)
    )
    sections = [index, bytes_field(1, bytes_field(6, details[:44]) + bytes_field(6, details[44:]))]
    manifests = [
        extended(manifest_bytes(table, 1), fragment_with(path)),
        *(
            extended(manifest_bytes(table, 1), bytes_field(FRAGMENTS, bytes_field(number, file)))
            for number in (6, 8, 10)
        ),
        *(
            manifest_of(
                number_field(VERSION, 1),
                number_field(INDEX_SECTION, 0),
                before=struct.pack("<I", len(section)) + section,
            )
            for section in sections
        ),
    ]
    if path:
        manifests.append(extended(manifest_bytes(table, 1), bytes_field(TRANSACTION_FILE, path.encode())))
    for data in manifests:
        with pytest.raises(InvalidInput, match="relative to the table"):
            check_staged(data, 1, "main", allow_none)


def test_every_base_has_to_be_allowed() -> None:
    data = manifest_of(
        number_field(VERSION, 1),
        bytes_field(BASE_PATHS, bytes_field(4, b"/ours")),
        bytes_field(BASE_PATHS, bytes_field(4, b"s3://theirs")),
    )
    check_staged(data, 1, "main", allow_all)
    with pytest.raises(InvalidInput, match="s3://theirs"):
        check_staged(data, 1, "main", lambda path: path == "/ours")


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "only an end": struct.pack("<QHH4s", 0, 0, 2, b"LANC"),
    "other magic": manifest_of(number_field(VERSION, 1))[:-4] + b"ARR1",
    "a position beyond": struct.pack("<I", 0) + struct.pack("<QHH4s", 2**64 - 1, 0, 2, b"LANC"),
    "a length beyond": struct.pack("<I", 2**32 - 1) + struct.pack("<QHH4s", 0, 0, 2, b"LANC"),
    "a length too short": struct.pack("<I", 0) + b"xx" + struct.pack("<QHH4s", 0, 0, 2, b"LANC"),
    "an endless number": manifest_of(b"\x18" + b"\x80" * 30),
    "a number of 70 bits": manifest_of(b"\x18" + b"\xff" * 9 + b"\x7f"),
    "a cut number": manifest_of(b"\x18\x80"),
    "a text beyond": manifest_of(varint(BRANCH << 3 | 2) + varint(2**62)),
    "a group": manifest_of(bytes([VERSION << 3 | 3])),
    "a field 0": manifest_of(b"\x00\x01"),
    "a version as text": manifest_of(bytes_field(VERSION, b"1")),
    "a fragment as number": manifest_of(number_field(FRAGMENTS, 1)),
    "a branch that is no text": manifest_of(bytes_field(BRANCH, b"\xff\xfe")),
    "an endless branch": manifest_of(bytes_field(BRANCH, b"x" * 5000)),
    "indices beyond": manifest_of(number_field(INDEX_SECTION, 10_000)),
    "indices far beyond": manifest_of(number_field(INDEX_SECTION, 2**64 - 2)),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedManifest):
        read_manifest(data)
    with pytest.raises(InvalidInput, match="manifest_path: is not a Lance manifest"):
        check_staged(data, 1, "main", allow_all)


def test_the_last_of_two_versions_counts_as_in_protobuf() -> None:
    assert read_manifest(manifest_of(number_field(VERSION, 1), number_field(VERSION, 2))).version == 2


def mutations(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        position = chance.randrange(len(damaged))
        damaged[position] = chance.randrange(256)
    cut = chance.randrange(len(damaged)) if chance.random() < 0.2 else len(damaged)
    return bytes(damaged[:cut])


@pytest.mark.parametrize("keep_the_end", [True, False])
def test_a_mutated_manifest_raises_nothing_but_its_own_error(
    table: Path,
    keep_the_end: bool,
) -> None:
    chance = random.Random(7)
    sources = [manifest_bytes(table, 4), manifest_bytes(table / "tree" / "dev", 5)]
    check: Callable[[str], bool] = allow_all
    for turn in range(4000):
        data = sources[turn % 2]
        end = data[-TAIL_BYTES:] if keep_the_end else b""
        damaged = mutations(data[: len(data) - len(end)], chance) + end
        try:
            check_staged(damaged, 4, "main", check)
        except InvalidInput:
            continue


def test_ids_of_columns_are_those_that_lance_tells(tmp_path: Path) -> None:
    point = pa.struct([pa.field("x", pa.int64()), pa.field("id", pa.list_(pa.string()))])
    columns = {"id": pa.array([1]), "point": pa.array([{"x": 1, "id": ["a"]}], point), "näme": pa.array([2])}
    dataset = lance.write_dataset(pa.table(columns), tmp_path / "t", enable_v2_manifest_paths=True)
    renamed: Any = {"path": "id", "name": "key"}
    dataset.alter_columns(renamed)
    ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    assert read_field_ids(manifest_bytes(tmp_path / "t", dataset.version)) == ids
    assert set(ids) == {"key", "point", "näme"}
