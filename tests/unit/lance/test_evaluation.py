"""Query processes: what they return, what becomes of those that die, and of commits of processes that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateTableVersionRequest, ListTableVersionsRequest

from tidemill.catalog.errors import TableColumnNotFound, TableVersionNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Table, TableVersion
from tidemill.errors import CommitStateUnknown, InvalidInput, Throttled, Unavailable
from tidemill.lance.datasets import CommittingNamespace, TableNamespace
from tidemill.lance.evaluation.bounds import BoundExceeded, QueryBounds
from tidemill.lance.evaluation.pool import QueryProcesses
from tidemill.lance.evaluation.tables import IN_MEMORY_BYTES, Tables
from tidemill.lance.model.queries import QueryResult
from tidemill.lance.versions.commit import VersionOperations

IDENT = TableIdent(NamespacePath(("n",)), "t")
BOUNDS = QueryBounds(
    memory_bytes=512 << 20, seconds=30, result_bytes=64 << 20, processes=2, queue_seconds=0.2
)


def make_rows(tables: Tables, count: int) -> QueryResult:
    schema = pa.schema([("id", pa.int64())])
    batches = (
        pa.record_batch([pa.array(range(start, start + 1000))], schema) for start in range(0, count, 1000)
    )
    return QueryResult(1, tables.arrow_file(schema, batches))


def two_dictionaries(tables: Tables) -> QueryResult:
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [pa.record_batch({"a": pa.array([text], kind)}) for text in ("x", "y")]
    return QueryResult(1, tables.arrow_file(batches[0].schema, iter(batches)))


def total(_: Tables, table: pa.Table) -> int:
    return int(sum(table["id"].to_pylist()))


def many_chunks(_: Tables, count: int) -> pa.Table:
    chunks = [pa.array([number] * 20_000, pa.int64()) for number in range(count)]
    return pa.table({"id": pa.chunked_array(chunks)})


def fail(_: Tables) -> None:
    raise TableColumnNotFound(IDENT, "x", ("a", "b"))


def allocate(_: Tables, count: int) -> int:
    return len(bytearray(count))


def die(_: Tables) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def be_killed(_: Tables) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def process_id(_: Tables) -> int:
    return os.getpid()


def wait(_: Tables, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def commit_and_die(namespace: TableNamespace) -> None:
    namespace.create_table_version(CreateTableVersionRequest(version=2, manifest_path="staged"))
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_commit(namespace: TableNamespace) -> None:
    namespace.list_table_versions(ListTableVersionsRequest())
    os.kill(os.getpid(), signal.SIGKILL)


class Versions:
    """Counts the commits."""

    def __init__(self) -> None:
        self.commits = 0

    def find_latest(self, _: Table) -> None:
        return None

    def commit(self, *_: object) -> TableVersion:
        self.commits += 1
        return cast("TableVersion", lance_version())


def lance_version() -> object:
    class Version:
        version, manifest_path, manifest_size, e_tag = 2, "final", 1, None

    return Version()


def namespace(versions: Versions) -> CommittingNamespace:
    return CommittingNamespace(cast("VersionOperations", versions), Table(uuid4(), IDENT, "/nowhere"))


@pytest.fixture(scope="module")
def processes() -> Iterator[QueryProcesses]:
    pool = QueryProcesses(BOUNDS, os.environ)  # as the server does
    pool.start()
    yield pool
    pool.close()


def test_rows_are_returned_small_medium_and_large(processes: QueryProcesses) -> None:
    for count in (1000, 100_000, IN_MEMORY_BYTES // 4):
        rows = processes.read("a", make_rows, count).to_table()
        assert rows["id"][-1].as_py() == rows.num_rows - 1 >= count - 1000


def test_dictionaries_of_several_batches_become_one(processes: QueryProcesses) -> None:
    assert processes.read("a", two_dictionaries).to_table()["a"].to_pylist() == ["x", "y"]


def test_a_result_beyond_the_bound_is_refused(processes: QueryProcesses) -> None:
    with pytest.raises(BoundExceeded, match="query_result_bytes"):
        processes.read("a", make_rows, 10_000_000)


def test_rows_are_given_to_work(processes: QueryProcesses) -> None:
    for count in (0, 1000, 100_000):
        rows = pa.table({"id": pa.array(range(count), pa.int64())})
        assert processes.read("a", total, rows) == sum(range(count))


def test_a_result_of_many_buffers_is_whole(processes: QueryProcesses) -> None:
    rows = processes.read("a", many_chunks, 40)
    assert rows["id"].to_pylist() == [number for number in range(40) for _ in range(20_000)]


def test_an_error_keeps_its_class_and_its_fields(processes: QueryProcesses) -> None:
    with pytest.raises(TableColumnNotFound, match="its columns are a, b"):
        processes.read("a", fail)


def rows_of(tables: Tables, table: Table, version: int) -> int:
    return int(tables.open(table, version).count_rows())


def test_a_version_that_is_removed_before_it_is_opened_is_not_found(
    processes: QueryProcesses, tmp_path: Path
) -> None:
    """Whoever asked for the latest one asks again."""
    table = Table(uuid4(), IDENT, str(tmp_path / "t.lance"))
    lance.write_dataset(pa.table({"id": [1]}), table.location)
    assert processes.read("a", rows_of, table, 1) == 1
    with pytest.raises(TableVersionNotFound):
        processes.read("a", rows_of, table, 2)


def test_memory_beyond_the_bound_is_refused(processes: QueryProcesses) -> None:
    with pytest.raises(BoundExceeded, match="query_memory_bytes"):
        processes.read("a", allocate, BOUNDS.memory_bytes + 1)


def test_a_process_that_used_much_is_not_used_again(processes: QueryProcesses) -> None:
    assert processes.read("a", process_id) == processes.read("a", process_id)


def test_a_crash_is_an_error_of_its_request_alone(processes: QueryProcesses) -> None:
    with pytest.raises(InvalidInput, match="SIGSEGV"):
        processes.read("a", die)
    assert processes.read("a", process_id)


def test_a_process_that_is_killed_from_outside_is_not_the_fault_of_the_request(
    processes: QueryProcesses,
) -> None:
    with pytest.raises(Unavailable, match="killed from outside"):
        processes.read("a", be_killed)
    assert processes.read("a", process_id)


def test_an_idle_process_that_is_killed_is_replaced(processes: QueryProcesses) -> None:
    idle = processes.read("a", process_id)
    os.kill(idle, signal.SIGKILL)
    while Path(f"/proc/{idle}/fd").exists() and os.listdir(f"/proc/{idle}/fd"):
        time.sleep(0.01)
    assert processes.read("a", process_id) != idle


def test_a_caller_leaves_processes_to_others(processes: QueryProcesses) -> None:
    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(processes.read, "a", wait, 3.0)
        while processes.read("b", process_id) and not busy.running():
            time.sleep(0.01)
        with pytest.raises(Throttled):
            processes.read("a", process_id)
        assert processes.read("b", process_id) != busy.result()


def test_what_takes_too_long_is_ended() -> None:
    pool = QueryProcesses(QueryBounds(seconds=0.5), os.environ)  # as the server does
    with pytest.raises(BoundExceeded, match="query_seconds"):
        pool.read("a", wait, 600)
    pool.close()


def test_a_process_that_dies_before_its_commit_has_changed_nothing(processes: QueryProcesses) -> None:
    versions = Versions()
    with pytest.raises(Unavailable, match="Nothing was changed"):
        processes.write("a", die_before_commit, namespace(versions))
    assert not versions.commits


def test_a_commit_whose_process_dies_is_not_called_a_failure(processes: QueryProcesses) -> None:
    versions = Versions()
    with pytest.raises(CommitStateUnknown, match="Version 2"):
        processes.write("a", commit_and_die, namespace(versions))
    assert versions.commits == 1


def test_the_zygote_never_runs_lance(processes: QueryProcesses) -> None:
    assert processes.read("a", process_id)
    assert lance.__version__
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    zygotes = [pid for pid in children if b"evaluation.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert zygotes
    for pid in zygotes:
        assert len(os.listdir(f"/proc/{pid}/task")) == 1
