"""Two teams share a server: what one of them gets of the other's functions, views and sources."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer, start_server
from tidemill.catalog.model.functions import decode_envelope, encode_envelope, source_function
from tidemill.sdk.errors import TidemillRequestError

SECRET = "long-enough-for-a-secret"
# A loaded machine takes a minute to start Spark.
TIMEOUT = 300.0
# What the teams are granted at first, and after `withdrawn` has taken the sources and functions away.
OWN = ["write", "compute", "function", "manage"]
TEAMS: dict[str, dict[str, list[str]]] = {
    "team_a": {"team_a": OWN},
    "team_b": {"team_b": OWN, "team_a": ["read"]},
    "stranger": {"team_c": OWN},
    "reader": {"team_b": ["read"]},
    "helper": {"team_b": ["read", "compute"]},
}
HIDDEN = "hidden_source"


def setting(**changes: dict[str, list[str]]) -> str:
    clients: dict[str, Any] = {"owner": {"secret": SECRET}}
    for name, grants in (TEAMS | changes).items():
        clients[name] = {"secret": SECRET, "grants": grants}
    return json.dumps(clients)


class Stand(NamedTuple):
    server: RunningServer

    @contextmanager
    def lake(self, client: str) -> Iterator[tidemill.Lake]:
        with tidemill.connect(self.server.url, credential=f"{client}:{SECRET}") as lake:
            yield lake

    def ask(self, client: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"x-api-key": f"{client}:{SECRET}"}
        return httpx.request(method, self.server.url + path, headers=headers, timeout=60, **options)


def length(text: str) -> int:
    return len(text)


def leak(text: str) -> int:
    return -1


LENGTH = tidemill.udf(length)
LEAK = tidemill.udf(leak)
SOURCE = source_function(
    "size", "def size(text): return len(text)", ["text"], pa.int64(), name="size", python="3.11"
)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = tmp_path_factory.mktemp("owners")
    running = start_server(root, TIDEMILL_CLIENTS=setting(), TIDEMILL_FUNCTION_ISOLATION="trusted")
    stand = Stand(running)
    with stand.lake("owner") as owner:
        for name in ("team_a", "team_b", "team_c"):
            owner.create_namespace(name)
    with stand.lake("team_a") as team_a:
        team_a.create_table(f"team_a.{HIDDEN}", [{"id": 1, "text": "mill"}, {"id": 2, "text": "tide"}])
    with stand.lake("team_b") as team_b:
        team_b.create_materialized_view("team_b.view", f"SELECT id FROM team_a.{HIDDEN}").refresh().wait(
            TIMEOUT
        )
    yield stand
    running.stop()


def test_a_team_with_one_namespace_registers_its_functions_there(stand: Stand) -> None:
    with stand.lake("stranger") as lake:
        digest = lake.register(LENGTH, "team_c")
        assert [(item.name, item.digest) for item in lake.functions("team_c")] == [("length", digest)]
        with pytest.raises(TidemillRequestError, match="'function' on team_a"):
            lake.register(LENGTH, "team_a")
        with pytest.raises(TidemillRequestError, match=r"'function' on \(root\)"):
            lake.register(LENGTH)


def test_whoever_knows_a_digest_does_not_put_other_code_under_it(stand: Stand) -> None:
    """The attacker comes first, with the digest of a function that the other team is about to register."""
    with stand.lake("stranger") as lake:
        docs = lake.create_table("team_c.claimed", [{"id": 1, "text": "mill"}])
        claimed = decode_envelope(encode_envelope(LEAK.function), "function")
        body = json.loads(encode_envelope(claimed)) | {"digest": LENGTH.function.digest}
        answer = stand.ask("stranger", "POST", "/api/v1/functions?namespace=team_c", json=body)
        assert answer.is_success or "digest" in answer.text
        assert docs.count_rows() == 1
    with stand.lake("team_a") as lake:
        docs = lake.create_table("team_a.honest", [{"id": 1, "text": "mill"}])
        docs.add_column("size", LENGTH)
        docs.backfill("size").wait(TIMEOUT)
        assert [row["size"] for row in docs.query(columns=["size"]).to_pylist()] == [4]


def test_a_digest_that_the_server_can_compute_is_not_taken_from_the_client(stand: Stand) -> None:
    body = json.loads(encode_envelope(SOURCE)) | {"digest": LENGTH.function.digest}
    answer = stand.ask("team_a", "POST", "/api/v1/functions?namespace=team_a", json=body)
    assert (answer.status_code, "body.digest" in answer.text) == (400, True)
    honest = stand.ask(
        "team_a", "POST", "/api/v1/functions?namespace=team_a", content=encode_envelope(SOURCE)
    )
    assert honest.is_success, honest.text


def test_whoever_knows_a_digest_changes_no_timeout_of_another_team(stand: Stand) -> None:
    with stand.lake("team_a") as team_a, stand.lake("stranger") as stranger:
        slow = tidemill.udf(timeout=100.0)(length)
        team_a.register(slow, "team_a")
        stranger.register(tidemill.udf(timeout=0.001)(length), "team_c")
        docs = team_a.create_table("team_a.timed", [{"id": 1, "text": "mill"}])
        docs.add_column("size", slow)
        docs.backfill("size").wait(TIMEOUT)
        assert docs.count_rows("size = 4") == 1


def test_a_stranger_does_not_learn_that_a_function_exists(stand: Stand) -> None:
    with stand.lake("team_a") as team_a, stand.lake("stranger") as stranger:
        team_a.register(LEAK, "team_a")
        assert "leak" in {item.name for item in team_a.functions()}
        assert "leak" not in {item.name for item in stranger.functions()}
    for name in ("leak", "missing"):
        answer = stand.ask("stranger", "POST", f"/v1/function/team_a${name}/describe", json={"version": "1"})
        assert answer.status_code == 403
    known, unknown = (
        stand.ask("stranger", "POST", "/v1/jobs/describe", json={"job_id": f"function-{digest}"})
        for digest in (LEAK.function.digest.removeprefix("sha256:"), "0" * 64)
    )
    assert (known.status_code, unknown.status_code) == (403, 403)


def test_a_reader_of_a_view_learns_nothing_of_its_sources(stand: Stand) -> None:
    with stand.lake("reader") as lake:
        assert lake.view("team_b.view").query().num_rows == 2
        assert lake.view("team_b.view").status().sources == ()
    jobs = stand.ask("reader", "GET", "/api/v1/jobs").json()["jobs"]
    refreshes = [job for job in jobs if job["table"] == ["team_b", "view"]]
    assert {job["progress"]["total"] for job in refreshes} == {0}
    asked = [
        stand.ask("reader", "GET", "/api/v1/views/team_b$view/status"),
        stand.ask("reader", "POST", "/v1/materialized_view/team_b$view/describe", json={}),
        stand.ask("reader", "POST", "/api/v1/views/team_b$view/explain", json={}),
        stand.ask("reader", "GET", "/api/v1/tables/team_b$view/lineage"),
        stand.ask("reader", "GET", "/api/v1/views/team_b$view/errors"),
        stand.ask("helper", "POST", "/v1/materialized_view/team_b$view/refresh", json={"src_version": 999}),
        stand.ask("reader", "GET", f"/api/v1/jobs/{refreshes[0]['job_id']}/events"),
    ]
    assert [answer.status_code for answer in asked] == [200, 200, 403, 200, 403, 400, 200]
    told = " ".join(answer.text for answer in asked) + json.dumps(refreshes)
    assert HIDDEN not in told
    assert "team_a" not in told


def test_an_administrator_of_a_namespace_reads_with_nobody_elses_rights(stand: Stand) -> None:
    answer = stand.ask("team_b", "POST", "/api/v1/views/team_b$view/owner", json={"owner": "owner"})
    assert answer.status_code == 403
    for name in ("local", "auto-refresh"):
        answer = stand.ask("owner", "POST", "/api/v1/views/team_b$view/owner", json={"owner": name})
        assert (answer.status_code, "owner" in answer.text) == (400, True)


def test_a_withdrawn_grant_stops_the_flow(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A server whose settings change: team B loses `read` on team A, and gets it back."""
    root = tmp_path_factory.mktemp("withdrawn")

    @contextmanager
    def running(**changes: dict[str, list[str]]) -> Iterator[Stand]:
        server = start_server(
            root,
            TIDEMILL_CLIENTS=setting(**changes),
            TIDEMILL_FUNCTION_ISOLATION="trusted",
            TIDEMILL_AUTO_REFRESH_POLL_SECONDS="0.5",
            TIDEMILL_AUTO_REFRESH_COOLDOWN_SECONDS="0",
        )
        yield Stand(server)
        server.stop()

    with running() as stand:
        with stand.lake("owner") as owner:
            for name in ("team_a", "team_b"):
                owner.create_namespace(name)
        with stand.lake("team_a") as team_a:
            team_a.create_table(f"team_a.{HIDDEN}", [{"id": 1, "text": "mill"}])
            team_a.register(SOURCE_UDF, "team_a")
        with stand.lake("team_b") as team_b:
            view = team_b.create_materialized_view("team_b.view", f"SELECT id FROM team_a.{HIDDEN}")
            view.refresh().wait(TIMEOUT)
            follower = team_b.create_materialized_view(
                "team_b.follower", f"SELECT id FROM team_a.{HIDDEN}", auto_refresh=True
            )
            wait_for(lambda: follower.status().is_fresh)
            assert view.status().owner == "team_b"
    withdrawn = {"team_b": {"team_b": OWN}}
    with running(**withdrawn) as stand:
        with stand.lake("team_a") as team_a:
            team_a.table(f"team_a.{HIDDEN}").add([{"id": 2, "text": "tide"}])
        with stand.lake("team_b") as team_b, stand.lake("reader") as reader, stand.lake("owner") as owner:
            view, follower = team_b.view("team_b.view"), team_b.view("team_b.follower")
            # What is in the view stays readable.
            assert reader.view("team_b.view").query().num_rows == 1
            job = view.refresh()
            with pytest.raises(tidemill.JobFailed, match=rf"owner 'team_b'.* on team_a\.{HIDDEN}"):
                job.wait(TIMEOUT)
            told = str(reader.job(job.id).failure)
            assert "its owner 'team_b'" in told
            assert HIDDEN not in told
            assert HIDDEN in str(owner.job(job.id).failure)
            reason = owner.view("team_b.follower").status().reason
            assert "owner 'team_b'" in reason
            assert HIDDEN in reason
            assert HIDDEN not in reader.view("team_b.follower").status().reason
            refreshes = [found for found in owner.jobs(table="team_b.follower") if found.kind == "refresh"]
            assert {str(found.state) for found in refreshes} == {"DONE"}
    with running() as stand, stand.lake("team_b") as team_b:
        view, follower = team_b.view("team_b.view"), team_b.view("team_b.follower")
        wait_for(lambda: follower.query().num_rows == 2)
        view.refresh().wait(TIMEOUT)
        assert view.query().num_rows == 2


SOURCE_UDF = tidemill.udf(name="shared_length")(length)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
