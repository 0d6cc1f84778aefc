"""Random and damaged requests: the server answers each of them and outlives all of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import RunningServer, start_server
from tests.protocol.fuzzing import (
    ARROW_STREAM,
    COMPRESSIONS,
    EVERY_TYPE,
    TEXTS,
    Requests,
    mutated,
    stream_of,
    streams,
)
from tests.protocol.wire import some_rows, stream
from tests.specification.answers import LANCE_PROTOCOL, checking
from tests.specification.tables import LANCE, Operation

ARROW_INPUTS: Final = int(os.environ.get("TIDEMILL_FUZZ_STREAMS", "600"))
EXAMPLES: Final = int(os.environ.get("TIDEMILL_FUZZ_EXAMPLES", "6"))
SEED: Final = int(os.environ.get("TIDEMILL_FUZZ_SEED", "20260101"))
ROWS: Final = some_rows()
WHOLE: Final = stream(ROWS)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of its own, without a worker: random requests start jobs that nobody wants to run."""
    running = start_server(tmp_path_factory.mktemp("fuzzed"), "--no-worker")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(target: RunningServer) -> Iterator[httpx.Client]:
    hooks = {"response": [checking(LANCE_PROTOCOL)]}
    with httpx.Client(base_url=target.url, timeout=60, event_hooks=hooks) as made:
        made.post("/v1/namespace/fz/create", json={})
        yield made


def check(answer: httpx.Response, sent: str) -> None:
    """Refusals are the caller's fault and say so in the protocol's form."""
    assert answer.status_code < 500, f"{answer.status_code} {answer.text[:300]} for {sent}"
    if answer.status_code >= 300:
        body = answer.json()
        assert type(body["code"]) is int, sent
        assert isinstance(body["error"], str), sent


def check_alive(target: RunningServer, client: httpx.Client) -> None:
    assert target.process.poll() is None
    assert client.get("/v1/namespace/fz/list").status_code == 200


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_is_stored_or_refused(client: httpx.Client, kind: str, compression: str | None) -> None:
    """What is stored comes back; what Lance cannot store is the caller's fault."""
    name = f"fz$whole-{uuid4().hex}"
    columns = {"id": pa.array([1, 2, 3, 4]), "column": EVERY_TYPE[kind]}
    answer = client.post(f"/v1/table/{name}/create", content=stream_of(columns, compression))
    check(answer, kind)
    if answer.status_code != 200:
        assert answer.json()["code"] in (13, 20), answer.text
        return
    check(client.post(f"/v1/table/{name}/insert", content=stream_of(columns, compression)), kind)
    assert client.post(f"/v1/table/{name}/count_rows", json={}).json() == 16


def test_damaged_streams_never_hurt_a_table_to_be(target: RunningServer, client: httpx.Client) -> None:
    for turn, (name, body) in enumerate(streams(ARROW_INPUTS // 2, SEED)):
        answer = client.post("/v1/table/fz$damaged/create", content=body, params={"mode": "overwrite"})
        check(answer, f"create: {name}")
        if turn % 50 == 0:
            check_alive(target, client)
    check_alive(target, client)


def test_damaged_streams_never_hurt_a_table(target: RunningServer, client: httpx.Client) -> None:
    supported = [kind for kind in EVERY_TYPE if kind not in ("interval", "list_view", "run_ends", "union")]
    columns = {"id": pa.array([1, 2, 3, 4])} | {kind: EVERY_TYPE[kind] for kind in supported}
    whole = [stream_of(columns, compression) for compression in COMPRESSIONS]
    made = client.post("/v1/table/fz$target/create", content=whole[0])
    assert made.status_code == 200, made.text
    chance = random.Random(SEED + 1)
    for turn in range(ARROW_INPUTS - ARROW_INPUTS // 2):
        body = mutated(whole[turn % len(whole)], chance)
        check(
            client.post("/v1/table/fz$target/insert", content=body), f"insert: turn {turn} of seed {SEED + 1}"
        )
        if turn % 50 == 0:
            check_alive(target, client)
    assert client.post("/v1/table/fz$target/insert", content=whole[1]).status_code == 200
    check(client.post("/v1/table/fz$target/query", json={"k": 10, "vector": {}}), "a query afterwards")
    check_alive(target, client)


REQUESTS: Final = Requests(LANCE)
IDS: Final = st.sampled_from(
    [*["fz$t"] * 20, *["fz"] * 4, "fz$missing", "nowhere$t", "$", "a$$b", "..", "\U0001f600", "x" * 300]
)


def test_every_operation_is_fuzzed() -> None:
    assert len(LANCE.operations) == 54


def restore_the_table(client: httpx.Client) -> None:
    """Earlier requests may have dropped or renamed it."""
    if client.post("/v1/table/fz$t/exists").status_code == 200:
        return
    client.post("/v1/namespace/fz/create", json={"mode": "ExistOk"})
    client.post("/v1/table/fz$t/create", content=WHOLE, params={"mode": "ExistOk"})


@pytest.mark.parametrize("operation", LANCE.operations.values(), ids=str)
def test_no_request_is_the_servers_fault(
    target: RunningServer, client: httpx.Client, operation: Operation
) -> None:
    bodies = REQUESTS.bodies(operation)
    queries = st.fixed_dictionaries(
        {}, optional={name: REQUESTS.named(name, one) | TEXTS for name, one in operation.query.items()}
    )
    takes_arrow = operation.body == ARROW_STREAM
    streams_sent = st.randoms(use_true_random=False).map(lambda chance: mutated(WHOLE, chance))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(identifier=IDS, body=bodies, query=queries, arrow=st.just(WHOLE) | streams_sent)
    def ask(identifier: str, body: Any, query: dict[str, Any], arrow: bytes) -> None:
        restore_the_table(client)
        path = operation.path.replace("{id}", quote(identifier, safe="")).replace("{index_name}", "id_idx")
        content: dict[str, Any] = {"content": arrow} if takes_arrow else {"json": body}
        if isinstance(body, dict) and body.get("id") is not None and identifier == "fz$t":
            content = {"json": body | {"id": ["fz", "t"]}} if not takes_arrow else content
        options = {} if operation.method == "GET" else content
        params = {name: value if isinstance(value, str) else str(value) for name, value in query.items()}
        answer = client.request(operation.method, path, params=params, **options)
        check(answer, f"{operation} at {path!r:.60} with {params!r:.200} and {options!r:.600}")

    ask()
    check_alive(target, client)
