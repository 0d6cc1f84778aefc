"""Storage that is away, read-only or full, and a database that is full or gone: each is said, nothing is 500.

Every case runs the same requests of all three protocols on one server. What needs the broken part is refused
with 503 or 507 and the reason, what does not need it is served, and when the part is back everything works
again without a restart.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import serving
from tests.e2e.waiting import eventually
from tests.protocol.wire import stream

ARROW: Final = {"content-type": "application/vnd.apache.arrow.stream"}
ICEBERG: Final = "/iceberg/v1/namespaces/a/tables"
FIELD: Final = {"id": 1, "name": "id", "required": False, "type": "long"}
SCHEMA: Final = {"type": "struct", "schema-id": 0, "fields": [FIELD]}
LARGE_ROWS: Final = 25
NUMBERS: Final = count()
Ask = Callable[[httpx.Client], httpx.Response]


def rows(amount: int = 3, length: int = 10) -> bytes:
    """Random texts, which Lance cannot compress."""
    return stream(pa.table({"id": range(amount), "text": [os.urandom(length).hex() for _ in range(amount)]}))


def post(path: str, body: Mapping[str, Any] | bytes, http: httpx.Client) -> httpx.Response:
    path = path.replace("NEW", f"t{next(NUMBERS)}")
    if isinstance(body, bytes):
        return http.post(path, content=body, headers=ARROW)
    new = {key: value.replace("NEW", f"t{next(NUMBERS)}") for key, value in body.items() if value == "NEW"}
    return http.post(path, json={**body, **new})


def get(path: str, http: httpx.Client) -> httpx.Response:
    return http.get(path)


LARGE: Final = rows(LARGE_ROWS, 30_000)
NEEDS_NO_STORAGE: Final[Sequence[Ask]] = (
    partial(get, "/v1/namespace/$/list"),
    partial(get, "/iceberg/v1/namespaces"),
    partial(get, "/api/v1/jobs"),
    partial(get, "/api/v1/manifests"),
)
READS: Final[Sequence[Ask]] = (
    partial(post, "/v1/table/a$t/describe", {"load_detailed_metadata": True}),
    partial(post, "/v1/table/a$t/count_rows", {}),
    partial(post, "/v1/table/a$t/query", {"k": 2, "vector": [], "columns": {"column_names": ["id"]}}),
    partial(post, "/v1/table/a$t/stats", {}),
    partial(get, f"{ICEBERG}/ice"),
)
WRITES: Final[Sequence[Ask]] = (
    partial(post, "/v1/table/a$NEW/create", LARGE),
    partial(post, "/v1/table/a$t/insert", LARGE),
    partial(post, "/v1/table/a$t/merge_insert?on=id&when_not_matched_insert_all=true", LARGE),
    partial(post, "/v1/table/a$t/update", {"updates": [["text", "repeat('y', 50000)"]]}),
    partial(post, "/v1/table/a$t/delete", {"predicate": "id = 1"}),
    partial(post, "/v1/table/a$t/add_columns", {"new_columns": [{"name": "more", "expression": "id + 1"}]}),
    partial(post, "/v1/table/a$t/tags/create", {"tag": "NEW", "version": 1}),
    partial(post, "/v1/table/a$t/branches/create", {"name": "NEW"}),
    partial(post, "/v1/table/a$t/restore", {"version": 1}),
    partial(post, ICEBERG, {"name": "NEW", "schema": SCHEMA}),
    partial(
        post,
        f"{ICEBERG}/ice",
        {"requirements": [], "updates": [{"action": "set-properties", "updates": {"x": "y" * 200_000}}]},
    ),
)
CHANGES_OF_NAMES: Final[Sequence[Ask]] = (
    partial(post, "/v1/namespace/NEW/create", {"properties": {"x": "y" * 10_000}}),
    partial(post, ICEBERG, {"name": "NEW", "schema": SCHEMA}),
    lambda http: http.put("/api/v1/manifests/large", json={"pip": [], "env_vars": {"x": "y" * 100_000}}),
)


@dataclass(frozen=True)
class Stand:
    server: RunningServer
    http: httpx.Client
    warehouse: Path
    database: Path

    def health(self) -> dict[str, Any]:
        answer = self.http.get("/api/v1/health")
        body: dict[str, Any] = answer.json()
        assert (answer.status_code == 200) is (body["status"] == "ok")
        return body

    def rows(self) -> int:
        return int(post("/v1/table/a$t/count_rows", {}, self.http).text)


@contextmanager
def on_small_disks(folder: Path) -> Iterator[Stand]:
    """A server whose warehouse and database are on file systems of their own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disks = {"warehouse": "32m", "database": "4m"}
    mounted: list[Path] = []
    try:
        for name, size in disks.items():
            (folder / name).mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)]
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"this machine does not let us mount: {done.stderr.strip()}")
            mounted.append(folder / name)
        with on_folders(folder) as stand:
            yield stand
    finally:
        for place in mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def on_folders(folder: Path) -> Iterator[Stand]:
    for name in ("warehouse", "database"):
        (folder / name).mkdir(exist_ok=True)
    warehouse, database = folder / "warehouse" / "w", folder / "database" / "catalog.db"
    server = start_server(
        folder / "root",
        "--no-worker",
        TIDEMILL_WAREHOUSE=str(warehouse),
        TIDEMILL_DATABASE_URL=f"sqlite:///{database}",
    )
    with httpx.Client(base_url=server.url, timeout=120) as http:
        http.post("/v1/namespace/a/create", json={}).raise_for_status()
        http.post("/v1/table/a$t/create", content=rows(), headers=ARROW).raise_for_status()
        http.post(ICEBERG, json={"name": "ice", "schema": SCHEMA}).raise_for_status()
        yield Stand(server, http, warehouse, database)
    server.stop()
    log = (folder / "root" / "server.log").read_text()
    assert "request failed" not in log, log[-4000:]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with on_small_disks(tmp_path_factory.mktemp("small")) as stand:
        yield stand


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with on_folders(tmp_path_factory.mktemp("plain")) as stand:
        yield stand


def check_served(stand: Stand, requests: Sequence[Ask]) -> None:
    for ask in requests:
        answer = ask(stand.http)
        assert answer.status_code == 200, (ask, answer.text)


def check_refused(stand: Stand, requests: Sequence[Ask], reason: str, statuses: set[int]) -> None:
    """In the form of the protocol, with the reason."""
    seen = set()
    for ask in requests:
        answer = ask(stand.http)
        assert answer.status_code in statuses, (ask, answer.status_code, answer.text)
        seen.add(answer.status_code)
        body = answer.json()
        error = body["error"]
        assert reason in (error if isinstance(error, str) else error["message"])
        if answer.request.url.path.startswith("/iceberg"):
            assert (answer.status_code, error["type"], error["code"]) == (503, "SlowDownException", 503)
        elif answer.request.url.path.startswith("/api"):
            assert error["code"] == ("storage_full" if answer.status_code == 507 else "unavailable")
        else:
            assert body["code"] == 17
    assert seen == statuses


def check_recovered(stand: Stand, before: int) -> None:
    eventually(lambda: stand.health()["status"] == "ok", "health sees that all is well")
    assert stand.rows() == before
    # One delete may have come first; the others are repeatable.
    check_served(stand, [*NEEDS_NO_STORAGE, *READS, CHANGES_OF_NAMES[0], WRITES[0], WRITES[7]])


def told(stand: Stand, part: str, reason: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        body = stand.health()
        return body if reason in body[part] else None

    return eventually(look, f"health says of the {part}: {reason}")


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", 0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


def test_a_warehouse_that_is_away_is_said(plain: Stand) -> None:
    before = plain.rows()
    away = plain.warehouse.rename(plain.warehouse.with_name("away"))
    try:
        body = told(plain, "storage", "is it mounted")
        assert (body["reads"], body["writes"]) == (
            {"database": True, "storage": False},
            {"database": True, "storage": False},
        )
        check_served(plain, NEEDS_NO_STORAGE)
        check_refused(plain, [*READS, *WRITES], "mounted", {503})
        assert not plain.warehouse.exists()
    finally:
        away.rename(plain.warehouse)
    check_recovered(plain, before)


def test_a_warehouse_that_is_read_only_is_read(small: Stand) -> None:
    before = small.rows()
    disk = small.warehouse.parent
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        body = told(small, "storage", "Read-only file system")
        assert (body["reads"]["storage"], body["writes"]["storage"]) == (True, False)
        check_served(small, [*NEEDS_NO_STORAGE, *READS])
        check_refused(small, WRITES, "Read-only file system", {503})
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    check_recovered(small, before)


def test_a_warehouse_that_is_full_is_read(small: Stand) -> None:
    before = small.rows()
    filler = fill(small.warehouse.parent)
    try:
        body = told(small, "storage", "No room is left")
        assert (body["reads"]["storage"], body["writes"]["storage"]) == (True, False)
        check_served(small, [*NEEDS_NO_STORAGE, *READS])
        check_refused(small, WRITES, "No space left on device", {503, 507})
    finally:
        filler.unlink()
    check_recovered(small, before)


def test_a_full_disk_under_the_database_changes_nothing(small: Stand) -> None:
    before = small.rows()
    filler = fill(small.database.parent)
    try:
        body = told(small, "database", "No room is left")
        assert (body["reads"]["database"], body["writes"]["database"]) == (True, False)
        check_served(small, [*NEEDS_NO_STORAGE, *READS])
        check_refused(small, CHANGES_OF_NAMES, "No room is left", {503, 507})
        check_refused(small, [WRITES[0], WRITES[1], WRITES[4]], "No room is left", {507})
    finally:
        filler.unlink()
    check_recovered(small, before)


def test_a_limit_of_file_sizes_is_a_full_disk(plain: Stand) -> None:
    """RLIMIT_FSIZE: EFBIG instead of ENOSPC, and needs no root."""
    before, pid = plain.rows(), serving(plain.server.process.pid).pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
    try:
        check_refused(plain, [partial(post, "/v1/table/a$t/insert", rows(100, 30_000))], "No room", {507})
        check_served(plain, [*NEEDS_NO_STORAGE, *READS])
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    check_recovered(plain, before)


def test_a_database_file_that_is_removed_is_not_written_to(plain: Stand) -> None:
    """A connection would go on in a file that nobody sees any more, and lose what it acknowledges."""
    before = plain.rows()
    files = list(plain.database.parent.glob("catalog.db*"))
    away = [file.rename(file.with_name(f"away-{file.name}")) for file in files]
    try:
        told(plain, "database", "cannot be opened")
        check_refused(
            plain, [*NEEDS_NO_STORAGE, *READS, *WRITES, *CHANGES_OF_NAMES], "cannot be opened", {503}
        )
        assert not plain.database.exists()
    finally:
        for file in away:
            file.rename(file.with_name(file.name.removeprefix("away-")))
    check_recovered(plain, before)


def test_health_leaves_no_file_and_looks_once_a_second(plain: Stand) -> None:
    def stored() -> list[Path]:
        return sorted(plain.warehouse.iterdir())

    before = stored()
    changed = os.stat(plain.warehouse).st_mtime_ns
    for _ in range(50):
        assert plain.health()["status"] == "ok"
    assert (stored(), os.stat(plain.warehouse).st_mtime_ns) == (before, changed)
