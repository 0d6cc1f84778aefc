"""Metadata files: their names, their contents, and the places where they may lie."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tidemill.errors import InvalidInput, PayloadTooLarge
from tidemill.iceberg import files as module
from tidemill.iceberg.errors import InvalidMetadata, MetadataFileNotFound
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Document, EntryKind
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import read_environment
from tidemill.storage.vending import NoCredentials

UUID_TEXT = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def files(warehouse: Path, tmp_path: Path) -> MetadataFiles:
    (tmp_path / "shared").mkdir()
    return MetadataFiles(LocalTableFiles(warehouse, [tmp_path / "shared"]))


@pytest.fixture
def objects() -> MetadataFiles:
    """An object store that nobody asks for anything."""
    return MetadataFiles(
        S3TableFiles(parse_prefix("s3://b/lake"), object(), read_environment({}), NoCredentials())
    )


def metadata(location: object, **properties: str) -> Document:
    named = {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
    return {"location": str(location), "properties": named, "x": 1}


def name_of(location: str) -> str:
    return location.rpartition("/")[2]


def test_what_was_written_is_read(files: MetadataFiles, warehouse: Path) -> None:
    given = metadata(warehouse / "t")
    written = files.write(given, EntryKind.TABLE, None)
    assert orjson.loads(written.data) == given
    assert files.read(written.location) == written.data
    assert files.exists(written.location)


def test_metadata_of_tables_is_plain_and_that_of_views_compressed(
    files: MetadataFiles, warehouse: Path
) -> None:
    table = files.write(metadata(warehouse / "t"), EntryKind.TABLE, None)
    view = files.write(metadata(warehouse / "v"), EntryKind.VIEW, None)
    assert re.fullmatch(f"{warehouse}/t/metadata/00000-{UUID_TEXT}.metadata.json", table.location)
    assert re.fullmatch(f"{warehouse}/v/metadata/00000-{UUID_TEXT}.gz.metadata.json", view.location)
    assert Path(table.location).read_bytes() == table.data
    assert gzip.decompress(Path(view.location).read_bytes()) == view.data


@pytest.mark.parametrize(
    ("codec", "ending"), [("GZIP", ".gz.metadata.json"), ("None", "[0-9a-f]{12}.metadata.json")]
)
def test_the_codec_is_a_property(files: MetadataFiles, warehouse: Path, codec: str, ending: str) -> None:
    given = metadata(warehouse / "t", write_metadata_compression__codec=codec)
    for kind in EntryKind:
        assert re.search(f"{ending}$", files.write(given, kind, None).location)


def test_another_codec_is_refused_before_anything_is_written(files: MetadataFiles, warehouse: Path) -> None:
    given = metadata(warehouse / "t", write_metadata_compression__codec="zstd")
    with pytest.raises(InvalidMetadata, match=r"^Invalid codec name: zstd; .* none, gzip$"):
        files.write(given, EntryKind.TABLE, None)
    assert not (warehouse / "t").exists()


@pytest.mark.parametrize(
    ("previous", "number"),
    [
        ("/w/t/metadata/00000-a.metadata.json", "00001"),
        ("s3://b/t/metadata/00041-x.gz.metadata.json", "00042"),
        ("/w/99999-a.metadata.json", "100000"),
        ("/w/t/metadata/v3.metadata.json", "00000"),
        ("/w/12-t/metadata/metadata.json", "00000"),
        ("/w/99999999999999-a.metadata.json", "00000"),
        ("", "00000"),
    ],
)
def test_files_are_counted_on(files: MetadataFiles, warehouse: Path, previous: str, number: str) -> None:
    written = files.write(metadata(warehouse / "t"), EntryKind.TABLE, previous)
    assert name_of(written.location).startswith(f"{number}-")


def test_metadata_may_have_a_directory_of_its_own(
    files: MetadataFiles, warehouse: Path, tmp_path: Path
) -> None:
    given = metadata(warehouse / "t", write_metadata_path=f"{tmp_path}/shared/m/")
    written = files.write(given, EntryKind.TABLE, None)
    assert Path(written.location).parent == tmp_path / "shared" / "m"
    outside = metadata(warehouse / "t", write_metadata_path=f"{tmp_path}/elsewhere")
    with pytest.raises(InvalidInput, match="outside the warehouse"):
        files.write(outside, EntryKind.TABLE, None)


@pytest.mark.parametrize("start", ["", "file:", "file://", "file://localhost"])
@pytest.mark.parametrize("end", ["", "/"])
def test_the_spelling_of_a_location_is_kept(
    files: MetadataFiles, warehouse: Path, start: str, end: str
) -> None:
    written = files.write(metadata(f"{start}{warehouse}/t{end}"), EntryKind.TABLE, None)
    assert written.location.startswith(f"{start}{warehouse}/t/metadata/00000-")
    assert (warehouse / "t" / "metadata" / name_of(written.location)).exists()
    assert files.read(written.location) == written.data
    assert files.resolve(f"{start}{warehouse}/t{end}") == f"{warehouse}/t"


def test_a_percent_sign_is_one_as_it_is_to_clients(files: MetadataFiles, warehouse: Path) -> None:
    written = files.write(metadata(f"file://{warehouse}/my%20t"), EntryKind.TABLE, None)
    assert (warehouse / "my%20t" / "metadata" / name_of(written.location)).exists()
    assert files.exists(written.location)


def test_compression_is_told_by_the_content(files: MetadataFiles, warehouse: Path) -> None:
    misnamed = warehouse / "00001-a.metadata.json"
    misnamed.write_bytes(gzip.compress(b'{"x":1}'))
    assert files.read(str(misnamed)) == b'{"x":1}'
    misnamed.with_name("00002-a.gz.metadata.json").write_bytes(b'{"x":2}')
    assert files.read(f"{warehouse}/00002-a.gz.metadata.json") == b'{"x":2}'


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"x"', b"\x1f\x8bx", gzip.compress(b"{}" * 99, mtime=0)[:-12], b"\xff"],
)
def test_what_is_no_metadata_is_refused(files: MetadataFiles, warehouse: Path, content: bytes) -> None:
    path = warehouse / "m.json"
    path.write_bytes(content)
    with pytest.raises(InvalidMetadata, match=f"^Failed to read json file: {path} "):
        files.read(str(path))


def test_a_small_file_that_swells_is_refused(
    files: MetadataFiles, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_METADATA_BYTES", 1000)
    (warehouse / "bomb").write_bytes(gzip.compress(b" " * 1001))
    (warehouse / "large").write_bytes(b" " * 1001)
    for name in ("bomb", "large"):
        with pytest.raises(PayloadTooLarge):
            files.read(f"{warehouse}/{name}")


def test_what_is_not_there_is_not_found(files: MetadataFiles, warehouse: Path) -> None:
    (warehouse / "directory").mkdir()
    for name in ("none", "none/none", "directory"):
        with pytest.raises(MetadataFileNotFound, match=f"^Failed to open input stream for file: {warehouse}"):
            files.read(f"{warehouse}/{name}")
    assert not files.exists(f"{warehouse}/none")


def test_a_file_is_removed_once_and_a_directory_never(files: MetadataFiles, warehouse: Path) -> None:
    written = files.write(metadata(warehouse / "t"), EntryKind.TABLE, None)
    files.remove(written.location)
    assert not files.exists(written.location)
    files.remove(written.location)
    files.remove(f"{warehouse}/t")
    assert (warehouse / "t").is_dir()


@pytest.mark.parametrize("location", ["sales/t", "t", "./t", "file:t", "t:/x", ""])
def test_a_location_has_to_be_absolute(files: MetadataFiles, objects: MetadataFiles, location: str) -> None:
    for each in (files, objects):
        with pytest.raises(InvalidInput, match=r"^location: .* must be an absolute path"):
            each.resolve(location)


@pytest.mark.parametrize(
    "location",
    [
        "{root}/elsewhere/t",
        "{root}/warehouse",
        "{root}/warehouse/../elsewhere",
        "file://{root}/warehouse/%2e%2e/elsewhere",
        "{root}/warehouse/link/t",
        "{root}/warehouse-2/t",
        "s3://b/lake/t",
        "http://host/t",
        "file:/{root_without_slash}/warehouse/\0",
    ],
)
def test_nothing_outside_is_touched(files: MetadataFiles, tmp_path: Path, location: str) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "t").write_bytes(b"{}")
    (tmp_path / "warehouse" / "link").symlink_to(outside)
    place = location.format(root=tmp_path, root_without_slash=str(tmp_path)[1:])
    for act in (files.resolve, files.read, files.exists, files.remove, files.make_directories):
        with pytest.raises(InvalidInput, match=r"^location: "):
            act(place)
    assert (outside / "t").read_bytes() == b"{}"
    assert [path.name for path in outside.iterdir()] == ["t"]


def test_a_link_that_stands_for_a_directory_is_not_followed(
    files: MetadataFiles, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (warehouse / "t").mkdir()
    (warehouse / "t" / "metadata").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match=r"^location: "):
        files.write(metadata(warehouse / "t"), EntryKind.TABLE, None)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_uri_with_a_host_is_not_a_path(files: MetadataFiles, warehouse: Path) -> None:
    for location in (f"file://{str(warehouse)[1:]}/t", f"FILE://{warehouse}/t"):
        with pytest.raises(InvalidInput, match="file:///path"):
            files.resolve(location)


def test_names_that_no_directory_can_have_are_refused(files: MetadataFiles, warehouse: Path) -> None:
    with pytest.raises(InvalidInput, match="a name of more than 255 bytes"):
        files.resolve(f"{warehouse}/{'x' * 300}/t")


def test_a_table_has_directories_for_its_files(files: MetadataFiles, warehouse: Path) -> None:
    for _ in range(2):
        files.make_directories(f"file:{warehouse}/sales/t/")
    assert sorted(path.name for path in (warehouse / "sales" / "t").iterdir()) == ["data", "metadata"]


def test_a_file_in_the_way_of_a_directory_is_the_callers_mistake(
    files: MetadataFiles, warehouse: Path
) -> None:
    (warehouse / "t").write_bytes(b"")
    with pytest.raises(InvalidInput, match="cannot be used"):
        files.make_directories(f"{warehouse}/t")
    with pytest.raises(InvalidInput, match="cannot be used"):
        files.write(metadata(warehouse / "t"), EntryKind.TABLE, None)


def test_an_object_store_has_no_directories(objects: MetadataFiles) -> None:
    objects.make_directories("s3://b/lake/t")


@pytest.mark.parametrize("location", ["s3://b/lake/t", "s3://b/lake/t/", "S3://b/lake/t"])
def test_places_in_object_stores_have_one_spelling(objects: MetadataFiles, location: str) -> None:
    assert objects.resolve(location) == "s3://b/lake/t"


@pytest.mark.parametrize(
    "location",
    [
        "s3://b/lake//t",
        "s3:///b/lake/t",
        "s3://b//lake/t",
        "s3://other/lake/t",
        "s3://b/lakes/t",
        "s3://b/lake",
        "s3://b/lake/_jobs/t",
        "s3://b/lake/../t",
        "s3a://b/lake/t",
        "/lake/t",
    ],
)
def test_other_keys_than_those_of_the_warehouse_are_refused(objects: MetadataFiles, location: str) -> None:
    with pytest.raises(InvalidInput, match=r"^location: "):
        objects.resolve(location)


@pytest.mark.parametrize("value", [2**70, "\ud800", [float]])
def test_what_json_cannot_say_is_refused(files: MetadataFiles, warehouse: Path, value: Any) -> None:
    with pytest.raises(InvalidMetadata, match="cannot be written as JSON"):
        files.write({**metadata(warehouse / "t"), "y": value}, EntryKind.TABLE, None)
