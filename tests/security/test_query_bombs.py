"""Expressions that exhaust memory, time or the stack: what a client sends costs that client an error, and
nobody else anything.

A second client queries all the time; the last test looks at what it was answered.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import httpx
import pyarrow as pa
import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import Process, descendants, serving

ROWS: Final = 2000
SECRET: Final = "long-enough-for-a-secret"
CLIENTS: Final = {"attacker": {"secret": SECRET}, "other": {"secret": SECRET, "grants": {"": ["read"]}}}
MIB: Final = 1 << 20
SECONDS: Final = 8
BOUNDS: Final = {
    "TIDEMILL_QUERY_MEMORY_BYTES": str(384 * MIB),
    "TIDEMILL_QUERY_RESULT_BYTES": str(MIB),
    "TIDEMILL_QUERY_SECONDS": str(SECONDS),
    "TIDEMILL_QUERY_PROCESSES": "4",
    "TIDEMILL_QUERY_QUEUE_SECONDS": "1",
}
# For the server itself, so that the machine survives if a defence fails.
SERVER_BYTES: Final = 8 << 30
TABLE: Final = "/v1/table/n$t"
ARROW: Final = {"content-type": "application/vnd.apache.arrow.stream"}
TERABYTES: Final = "array_length([repeat(text, 50000000), repeat(text, 50000000)]) > 0"
CONSTANT: Final = "repeat('a', 2000000000)"
# 0.3 s for each row, in a fifth of the memory that a process may use.
FOREVER: Final = "levenshtein(repeat(text, 2000), repeat('b', 20000)) > 0"


class Answer(NamedTuple):
    status: int
    seconds: float
    text: str


class Victim:
    """The other client: it counts and queries without a pause."""

    def __init__(self, url: str) -> None:
        self.answers: list[Answer] = []
        self._http = httpx.Client(base_url=url, headers={"x-api-key": f"other:{SECRET}"}, timeout=120)
        self._is_over = Event()
        self._thread = Thread(target=self._ask)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._http.close()

    def _ask(self) -> None:
        while not self._is_over.wait(0.05):
            began = time.monotonic()
            counted = self._http.post(f"{TABLE}/count_rows", json={"predicate": "id >= 0"})
            text = "" if counted.status_code == 200 else counted.text
            self.answers.append(Answer(counted.status_code, time.monotonic() - began, text))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("bombs"), "--no-worker", TIDEMILL_CLIENTS=json.dumps(CLIENTS), **BOUNDS
    )
    resource.prlimit(serving(running.process.pid).pid, resource.RLIMIT_AS, (SERVER_BYTES, SERVER_BYTES))
    yield running
    running.stop()


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def rows() -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * ROWS * 8, pa.float32()), 8)
    texts = [f"text {number}" for number in range(ROWS)]
    return pa.table({"id": range(ROWS), "text": texts, "vector": vectors})


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    headers = {"x-api-key": f"attacker:{SECRET}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=120) as client:
        assert client.post("/v1/namespace/n/create", json={}).status_code == 200
        created = client.post(f"{TABLE}/create", content=stream(rows()), headers=ARROW)
        assert created.status_code == 200, created.text
        yield client


@pytest.fixture(scope="module", autouse=True)
def victim(server: RunningServer, http: httpx.Client) -> Iterator[Victim]:
    other = Victim(server.url)
    other.start()
    yield other
    other.stop()


def query(**fields: Any) -> Mapping[str, Any]:
    return {"vector": {}, "k": 10, **fields}


def posted(http: httpx.Client, route: str, body: Mapping[str, Any]) -> httpx.Response:
    return http.post(route if route.startswith("/") else f"{TABLE}/{route}", json=body)


def check_exceeded(answer: httpx.Response, setting: str) -> None:
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == 13
    assert setting in answer.json()["error"]


WITH_TERABYTES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "count": ("count_rows", {"predicate": TERABYTES}),
    "filter": ("query", query(filter=TERABYTES)),
    "projection": ("query", query(columns={"column_aliases": {"a": TERABYTES}})),
    "analyzed plan": ("analyze_plan", query(filter=TERABYTES)),
    "deletion": ("delete", {"predicate": TERABYTES}),
    "condition of an update": ("update", {"updates": [["id", "1"]], "predicate": TERABYTES}),
    "new value": ("update", {"updates": [["id", "array_length([repeat(text, 50000000)])"]]}),
    "constant value": ("update", {"updates": [["text", CONSTANT]]}),
    "new column": ("add_columns", {"new_columns": [{"name": "c", "expression": TERABYTES}]}),
    "explained plan": ("explain_plan", {"query": query(filter=f"{CONSTANT} = text")}),
    "stored query": ("/v1/view/n$v/create", {"query": f"SELECT id FROM n.t WHERE {CONSTANT} = text"}),
    "vector search": (
        "query",
        {"vector": {"single_vector": [0.5] * 8}, "vector_column": "vector", "k": 3, "filter": TERABYTES},
    ),
}


@pytest.mark.parametrize("kind", WITH_TERABYTES)
def test_the_memory_of_the_server_is_not_had_with(http: httpx.Client, kind: str) -> None:
    check_exceeded(posted(http, *WITH_TERABYTES[kind]), "query_memory_bytes")


@pytest.mark.parametrize("option", ["when_matched_update_all_filt", "when_not_matched_by_source_delete_filt"])
def test_the_memory_of_the_server_is_not_had_with_a_merge(http: httpx.Client, option: str) -> None:
    is_update = option.startswith("when_matched")
    parameters = {
        "on": "id",
        "when_matched_update_all": "true",
        "when_not_matched_insert_all": "true",
        "when_not_matched_by_source_delete": str(not is_update).lower(),
        option: f"{CONSTANT} = 'b'" if is_update else TERABYTES,
    }
    answer = http.post(
        f"{TABLE}/merge_insert", params=parameters, content=stream(rows()[:100]), headers=ARROW
    )
    check_exceeded(answer, "query_memory_bytes")


def test_nothing_of_it_is_written(http: httpx.Client) -> None:
    for kind in ("constant value", "new value", "new column", "deletion"):
        posted(http, *WITH_TERABYTES[kind])
    assert http.post(f"{TABLE}/describe", json={}).json()["version"] == 1
    assert http.post(f"{TABLE}/count_rows", json={}).json() == ROWS


KIN: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "a range": ("count_rows", {"predicate": "array_length(range(0, 1000000000000)) > id"}),
    "a series": ("count_rows", {"predicate": "array_length(generate_series(1, 1000000000000)) > id"}),
    "a repeated array": ("count_rows", {"predicate": "array_length(array_repeat(text, 1000000000000)) > 0"}),
    "padding": ("count_rows", {"predicate": "length(lpad(text, 2000000000, 'ab')) > 0"}),
    "unnested arrays": ("query", query(columns={"column_aliases": {"a": "unnest(range(0, 1000000000))"}})),
    "backtracking": ("count_rows", {"predicate": f"regexp_like(repeat('a', 30), '{'(a?)' * 30}{'a' * 30}')"}),
    "repeated repetitions": ("count_rows", {"predicate": "regexp_like(text, '((a{1000}){1000}){1000}')"}),
    "many wildcards": ("count_rows", {"predicate": f"text LIKE '{'%a' * 2000}'"}),
    "a long list": ("count_rows", {"predicate": f"id IN ({','.join(map(str, range(1500)))})"}),
    "arithmetic": ("count_rows", {"predicate": "id + 9223372036854775807 > 0 AND id / 0 = 1"}),
    "the smallest number": ("count_rows", {"predicate": "(-9223372036854775807 - 1) / (id - id - 1) > 0"}),
    "casts": ("count_rows", {"predicate": "CAST(repeat('9', 5000) AS DECIMAL(38, 10)) > id"}),
    "a wide type": ("count_rows", {"predicate": "arrow_cast(text, 'FixedSizeBinary(2147483647)') = text"}),
    "a huge limit": ("query", query(k=(1 << 63) - 1, filter="id < 3")),
    "a huge offset": ("query", query(offset=(1 << 63) - 1, filter="id < 3")),
    "a huge vector": ("query", {"vector": {"single_vector": [0.1] * 100_000}, "k": 1}),
    "many neighbours": (
        "query",
        {"vector": {"single_vector": [0.5] * 8}, "vector_column": "vector", "k": (1 << 31) - 1, "nprobes": 9},
    ),
    "a huge refinement": (
        "query",
        {
            "vector": {"single_vector": [0.5] * 8},
            "vector_column": "vector",
            "k": 2,
            "refine_factor": (1 << 31) - 1,
            "ef": (1 << 31) - 1,
        },
    ),
    "a wide projection": (
        "query",
        query(columns={"column_aliases": {f"c{n}": "id + 1" for n in range(5000)}}),
    ),
    "a deep condition": ("delete", {"predicate": f"{'NOT ' * 2000}id > 0"}),
    "a deep value": ("update", {"updates": [["id", f"{'(' * 3000}1{')' * 3000}"]]}),
    "a deep column": (
        "add_columns",
        {"new_columns": [{"name": "c", "expression": f"{'abs(' * 1500}id{')' * 1500}"}]},
    ),
}


@pytest.mark.parametrize("kind", KIN)
def test_the_server_is_not_lost_to(server: RunningServer, http: httpx.Client, kind: str) -> None:
    before = serving(server.process.pid)
    answer = posted(http, *KIN[kind])
    assert answer.status_code < 500, answer.text
    assert serving(server.process.pid) == before


def test_the_server_does_not_hold_a_result_beyond_the_bound(http: httpx.Client) -> None:
    columns = {"column_aliases": {"a": "repeat(text, 1000)"}}
    check_exceeded(posted(http, "query", query(k=ROWS, columns=columns)), "query_result_bytes")


def test_processes_are_not_taken_from_others_for_ever(http: httpx.Client) -> None:
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda _: posted(http, "count_rows", {"predicate": FOREVER}), range(3)))
    late = [answer for answer in answers if answer.status_code == 400]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(late) == 2, [answer.text for answer in answers]
    assert len(refused) == 1
    for answer in late:
        assert "query_seconds" in answer.json()["error"]


def test_the_memory_of_the_server_is_back_and_nobody_else_noticed(
    server: RunningServer, http: httpx.Client, victim: Victim
) -> None:
    before = resident_bytes(serving(server.process.pid))
    for _ in range(5):
        posted(http, "count_rows", {"predicate": TERABYTES})
    victim.stop()
    assert len(victim.answers) > 20
    assert [answer for answer in victim.answers if answer.status != 200] == []
    # It did not wait for attacks to end.
    assert median(answer.seconds for answer in victim.answers) < SECONDS
    assert resident_bytes(serving(server.process.pid)) < before + 64 * MIB
    assert all(resident_bytes(process) < 1024 * MIB for process in descendants(server.process.pid))


def resident_bytes(process: Process) -> int:
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()
