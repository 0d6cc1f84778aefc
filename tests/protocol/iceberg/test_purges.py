"""Tables that are dropped for good: everything of theirs goes, and nothing of anybody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import tidemill
from tests.conftest import RunningServer
from tests.protocol.iceberg.clients import people, pyiceberg_on
from tests.protocol.iceberg.wire import Space, check_error, set_properties
from tests.unit.iceberg.planning.lakes import (
    data_file,
    entry,
    metadata_with,
    write_manifest,
    write_manifest_list,
)
from tidemill.catalog.model.identifiers import table_ident
from tidemill.iceberg.model.entries import EntryKind
from tidemill.iceberg.operations.purges import Purger
from tidemill.server.bootstrap import build_purger
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import SqlStore, open_store

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
NAMED = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))


@pytest.fixture(scope="module")
def catalog(server: RunningServer) -> Iterator[RestCatalog]:
    with pyiceberg_on(f"{server.url}/iceberg") as connected:
        yield connected


@pytest.fixture
def filled(catalog: RestCatalog, space: Space) -> Table:
    made: Table = catalog.create_table((space.name, "t"), NAMED, partition_spec=BY_NAME)
    made.append(people((1, "ann"), (2, "a/b c%")))
    made.overwrite(people((3, "eve")), "id = 1")
    return made


def damaged(codec: str, schema: str = '{"type": "record", "name": "manifest_file", "fields": []}') -> bytes:
    """An Avro file with one block of one row, which is not what the codec makes."""
    texts = {b"avro.schema": schema.encode(), b"avro.codec": codec.encode()}
    head = b"".join(b"%c%b%b%b" % (len(k) * 2, k, _length(len(v)), v) for k, v in texts.items())
    sync = b"0123456789abcdef"
    return b"Obj\x01\x04" + head + b"\x00" + sync + b"\x02\x08" + b"\xff\xfe\xfd\xfc" + sync


def _length(count: int) -> bytes:
    """A number as Avro writes it, in groups of seven bits."""
    count, groups = count * 2, []
    while count > 127:
        groups.append(count & 127 | 128)
        count >>= 7
    return bytes([*groups, count])


UNREADABLE = {
    "nothing": b"",
    "no Avro": b"no manifest",
    "no header": b"Obj\x01\x00",
    **{codec: damaged(codec) for codec in ("null", "deflate", "zstandard", "bzip2", "snappy")},
}


def warehouse_of(server: RunningServer) -> Path:
    return server.root / "warehouse"


def directory_of(location: str) -> Path:
    return Path(urlsplit(location).path)


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def drop(space: Space, name: str = "t") -> httpx.Response:
    return space.http.delete(space.table(name), params={"purgeRequested": "true"})


def register(space: Space, name: str, location: Path | str) -> None:
    body = {"name": name, "metadata-location": str(location)}
    answer = space.http.post(space.at("register"), json=body)
    assert answer.status_code == 200, answer.text


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_data_manifests_and_metadata_go(space: Space, filled: Table) -> None:
    directory = directory_of(filled.location())
    kinds = {Path(name).suffix for name in files_below(directory)}
    assert kinds == {".parquet", ".avro", ".json"}
    assert drop(space).status_code == 204
    assert files_below(directory) == {}


def test_a_table_that_must_not_be_collected_keeps_its_files(space: Space, filled: Table) -> None:
    with filled.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    directory = directory_of(filled.location())
    before = files_below(directory)
    assert drop(space).status_code == 204
    assert files_below(directory) == before
    check_error(space.http.get(space.table()), 404, "NoSuchTableException")


def test_a_table_of_format_three_loses_its_files(space: Space, server: RunningServer) -> None:
    place = warehouse_of(server) / f"three-{space.name}"
    place.mkdir()
    data, deletes = (place / name for name in ("data.parquet", "deletes.puffin"))
    for file in (data, deletes):
        file.write_bytes(b"x")
    manifests = [
        write_manifest(place / "data.avro", [entry(data_file(str(data)))], ManifestContent.DATA),
        write_manifest(place / "deletes.avro", [entry(data_file(str(deletes)))], ManifestContent.DELETES),
    ]
    write_manifest_list(place / "list.avro", manifests)
    metadata = place / "00000-x.metadata.json"
    metadata.write_bytes(metadata_with(place, str(place / "list.avro")))
    register(space, "t", metadata)
    assert drop(space).status_code == 204
    assert files_below(place) == {}


def test_lists_that_are_null_are_empty(space: Space) -> None:
    document = space.made_table()["metadata"]
    assert space.http.delete(space.table()).status_code == 204
    place = directory_of(document["location"])
    nothing = dict.fromkeys(("properties", "snapshots", "statistics", "partition-statistics", "metadata-log"))
    file = written(place / "metadata/nulls.metadata.json", {**document, **nothing})
    # What is served is what the file says, which is not what the specification asks for.
    with httpx.Client(base_url=space.http.base_url, timeout=60) as unchecked:
        register(replace(space, http=unchecked), "nulls", file)
    assert drop(space, "nulls").status_code == 204
    assert not (place / "metadata/nulls.metadata.json").exists()


@pytest.mark.parametrize("content", UNREADABLE, ids=list(UNREADABLE))
def test_manifests_that_are_none_do_not_keep_the_rest(space: Space, filled: Table, content: str) -> None:
    snapshot = filled.refresh().current_snapshot()
    assert snapshot is not None
    directory_of(snapshot.manifest_list).write_bytes(UNREADABLE[content])
    check_error(space.http.post(f"{space.table()}/plan", json={}), 406, "UnsupportedOperationException")
    assert drop(space).status_code == 204
    assert not directory_of(filled.metadata_location).exists()
    assert not directory_of(snapshot.manifest_list).exists()


class Forged:
    """The document of a table that names somebody else's files wherever a document can name files."""

    def __init__(self, space: Space, place: Path, victims: list[Path]) -> None:
        made = space.made_table("forged")
        self.document = made["metadata"]
        self.place = place
        place.mkdir(parents=True)
        manifest = write_manifest(
            place / "manifest.avro", [entry(data_file(str(file))) for file in victims], ManifestContent.DATA
        )
        write_manifest_list(place / "list.avro", [manifest])
        lists = [place / "list.avro", *victims]
        snapshots = json.loads(metadata_with(place, ""))["snapshots"]
        self.document |= {
            "location": str(place),
            "last-sequence-number": 7,
            "snapshots": [
                {**snapshots[0], "snapshot-id": number, "manifest-list": str(path)}
                for number, path in enumerate(lists, start=1)
            ],
            "metadata-log": [
                {"timestamp-ms": 1_700_000_000_000, "metadata-file": str(file)} for file in victims
            ],
            "statistics": [
                {
                    "snapshot-id": 1,
                    "statistics-path": f"file://{file}",
                    "file-size-in-bytes": 1,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [],
                }
                for file in victims
            ],
        }

    def register(self, space: Space) -> Path:
        metadata = written(self.place / "00001-x.metadata.json", self.document)
        register(space, "t", metadata)
        return metadata


@pytest.fixture
def lance_table(lake: tidemill.Lake, space: Space) -> tidemill.Table:
    return lake.create_table(f"{space.name}.lance", pa.table({"id": [1, 2, 3]}))


def lance_directory(http: httpx.Client, space: Space) -> Path:
    described = http.post(f"/v1/table/{space.name}$lance/describe", json={})
    return Path(described.json()["location"])


def test_a_forged_document_does_not_remove_files_of_a_lance_table(
    space: Space, server: RunningServer, http: httpx.Client, lance_table: tidemill.Table
) -> None:
    directory = lance_directory(http, space)
    before = files_below(directory)
    assert before
    forged = Forged(space, warehouse_of(server) / f"forged-{space.name}", [Path(name) for name in before])
    metadata = forged.register(space)
    assert drop(space).status_code == 204
    assert files_below(directory) == before
    assert not metadata.exists()
    assert lance_table.query()["id"].to_pylist() == [1, 2, 3]


def test_a_forged_log_does_not_remove_files_of_a_lance_table(
    space: Space, server: RunningServer, http: httpx.Client, lance_table: tidemill.Table
) -> None:
    """Commits remove what falls out of the log, if the table says so."""
    directory = lance_directory(http, space)
    before = files_below(directory)
    forged = Forged(space, warehouse_of(server) / f"forged-{space.name}", [Path(name) for name in before])
    forged.document["properties"] |= {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    forged.register(space)
    for number in range(3):
        assert space.commit(space.table(), set_properties(a=str(number))).status_code == 200
    assert files_below(directory) == before


def test_a_forged_document_does_not_remove_files_outside_the_warehouse(
    space: Space, server: RunningServer, tmp_path: Path
) -> None:
    victims = [tmp_path / "precious", warehouse_of(server) / f"forged-{space.name}/../../server.log"]
    victims[0].write_text("mine")
    forged = Forged(space, warehouse_of(server) / f"forged-{space.name}", victims)
    metadata = forged.register(space)
    assert drop(space).status_code == 204
    assert victims[0].read_text() == "mine"
    assert (server.root / "server.log").exists()
    assert not metadata.exists()


def test_a_directory_that_is_named_as_a_file_stays(space: Space, server: RunningServer) -> None:
    place = warehouse_of(server) / f"forged-{space.name}"
    directory = warehouse_of(server) / f"directory-{space.name}"
    written(directory / "file", {})
    Forged(space, place, [directory]).register(space)
    assert drop(space).status_code == 204
    assert (directory / "file").exists()


@pytest.fixture
def store(server: RunningServer) -> Iterator[SqlStore]:
    """The database of the running server, as its worker has it."""
    opened = open_store(f"sqlite:///{server.root / 'catalog.db'}")
    yield opened
    opened.close()


@pytest.fixture
def purger(store: SqlStore, server: RunningServer) -> Purger:
    return build_purger(store, LocalTableFiles(warehouse_of(server)))


def test_a_purge_that_was_interrupted_is_finished(
    space: Space, filled: Table, store: SqlStore, purger: Purger
) -> None:
    """A server that dies after the drop leaves the table's name gone and its row in the queue."""
    ident = table_ident((space.name, "t"))
    with store.transaction() as tx:
        found = tx.iceberg.lock(ident, EntryKind.TABLE)
        assert found is not None
        tx.purges.add(found)
        tx.iceberg.remove(found.entry_id)
    directory = directory_of(filled.location())
    next(path for path in directory.rglob("*.parquet")).unlink()
    assert files_below(directory)
    purger.purge_waiting()
    assert files_below(directory) == {}
    with store.reading() as tx:
        assert [waiting for waiting in tx.purges.list_waiting(100) if waiting.ident == ident] == []
