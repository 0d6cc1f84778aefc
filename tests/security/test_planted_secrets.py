"""Secrets that clients and the deployment put wherever they can, looked for wherever the server writes."""

from __future__ import annotations

import json
import sqlite3
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.protocol.permissions.objects import Objects
from tests.protocol.wire import some_rows, stream

PLANTED: Final = "planted"
OWNER_SECRET: Final = f"{PLANTED}-of-the-owner-1"
GUEST_SECRET: Final = f"{PLANTED}-of-the-guest-2"
CLIENTS: Final = {
    "owner": {"secret": OWNER_SECRET},
    "guest": {"secret": GUEST_SECRET, "grants": {"elsewhere": ["read"]}},
}
TOKENS: Final = "/iceberg/v1/oauth/tokens"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def plant_in_credentials(http: httpx.Client) -> list[httpx.Response]:
    secret = f"{PLANTED}-credential"
    get = "/api/v1/jobs"
    return [
        http.get(get, headers={"x-api-key": secret}),
        http.get(get, headers={"x-api-key": f"owner:{secret}"}),
        http.get(get, headers={"x-api-key": f"{secret}:owner"}),
        http.get(get, headers={"authorization": f"Bearer {secret}"}),
        http.get(get, headers={"authorization": f"Bearer {secret}.{secret}.{secret}"}),
        http.get(get, headers={"authorization": basic("owner", secret)}),
        http.get(get, params={"authorization": f"Bearer {secret}", "x-api-key": f"owner:{secret}"}),
        http.get(f"/api/v1/{get}", params={"access_token": secret}),
        http.post("/v1/namespace/x/create", json={}, headers={"x-api-key": f"guest:{secret}"}),
    ]


def plant_in_forms(http: httpx.Client) -> list[httpx.Response]:
    secret = f"{PLANTED}-form"
    return [
        http.post(TOKENS, data={"grant_type": "client_credentials", "client_id": "owner", **extra})
        for extra in (
            {"client_secret": secret},
            {"client_id": secret},
            {"client_secret": secret, "x": secret},
        )
    ] + [
        http.post(TOKENS, data={"grant_type": TOKEN_EXCHANGE, "subject_token": secret}),
        http.post(
            TOKENS,
            data={"grant_type": "client_credentials"},
            headers={"authorization": basic(secret, secret)},
        ),
    ]


def plant_as_owner(http: httpx.Client) -> list[httpx.Response]:
    """Where secrets belong. All of these are accepted."""
    secret, key = f"{PLANTED}-value", {"x-api-key": f"owner:{OWNER_SECRET}"}
    objects = Objects(httpx.Client(base_url=http.base_url, headers=key, timeout=60, trust_env=False))
    table = objects.computed()
    environment = {"TOKEN": secret}
    answers = [
        http.post("/v1/secret/home$s/create", json={"value": secret}, headers=key),
        http.post("/v1/secret/home$s/alter", json={"value": f"{secret}-again"}, headers=key),
        http.put("/api/v1/manifests/m", json={"env_vars": environment}, headers=key),
        http.post(
            f"/api/v1/tables/{table}/preview",
            json={"column": "length", "manifest": json.dumps({"env_vars": environment})},
            headers=key,
        ),
        http.post("/v1/table/home$t/create", content=stream(some_rows()), headers=key),
        http.post(
            TOKENS,
            data={"grant_type": "client_credentials", "client_id": "owner", "client_secret": OWNER_SECRET},
        ),
    ]
    objects._owner.close()
    assert [answer.status_code for answer in answers if not answer.is_success] == [], answers
    # What the owner gets for a token is the one place where one belongs.
    return answers[:-1]


def plant_in_refused_requests(http: httpx.Client) -> list[httpx.Response]:
    """The guest may do nothing there."""
    secret, key = f"{PLANTED}-refused", {"x-api-key": f"guest:{GUEST_SECRET}"}
    return [
        http.post("/v1/secret/home$s/create", json={"value": secret}, headers=key),
        http.put("/api/v1/manifests/m", json={"env_vars": {"TOKEN": secret}}, headers=key),
        http.post("/v1/table/home$r/register", json={"location": f"s3://id:{secret}@bucket/t"}, headers=key),
        http.post("/v1/namespace/home/create", json={"properties": {"password": secret}}, headers=key),
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("secrets"),
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        TIDEMILL_FAILED_LOGINS_PER_ADDRESS="1000",
        TIDEMILL_FAILED_LOGINS_PER_CLIENT="1000",
        TIDEMILL_LOG_LEVEL="DEBUG",
        TIDEMILL_SPARK_MASTER="local[1]",
        AWS_ACCESS_KEY_ID="id-of-the-deployment",
        AWS_SECRET_ACCESS_KEY=f"{PLANTED}-of-the-deployment",
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def answers(server: RunningServer) -> list[httpx.Response]:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        plants = (plant_as_owner, plant_in_credentials, plant_in_forms, plant_in_refused_requests)
        return [answer for plant in plants for answer in plant(http)]


@pytest.fixture(scope="module")
def listed(server: RunningServer, answers: list[httpx.Response]) -> dict[str, str]:
    """What the owner can list afterwards, once the refusals have been written."""
    key = {"x-api-key": f"owner:{OWNER_SECRET}"}
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False, headers=key) as http:
        deadline = time.monotonic() + 30
        while len(http.get("/api/v1/audit", params={"decision": "denied"}).json()["events"]) < 15:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        jobs = http.get("/api/v1/jobs").json()["jobs"]
        events = [http.get(f"/api/v1/jobs/{job['job_id']}/events").text for job in jobs]
        assert jobs
        return {
            "audit": http.get("/api/v1/audit", params={"limit": 1000}).text,
            "jobs": json.dumps(jobs) + "".join(events),
            "manifests": http.get("/api/v1/manifests").text + http.get("/api/v1/manifests/m").text,
            "tables": http.post("/v1/table/home$t/describe", json={}).text,
            "secrets": http.post("/v1/secret/home$s/describe", json={}).text,
        }


def test_no_response_repeats_a_secret(answers: list[httpx.Response]) -> None:
    assert [f"{answer.request.url}: {answer.text}" for answer in answers if PLANTED in answer.text] == []


@pytest.mark.parametrize("what", ["audit", "jobs", "manifests", "tables", "secrets"])
def test_nothing_that_can_be_listed_has_a_secret(listed: dict[str, str], what: str) -> None:
    assert PLANTED not in listed[what]


def test_no_log_line_has_a_secret(server: RunningServer, listed: dict[str, str]) -> None:
    log = (server.root / "server.log").read_text()
    assert '"audit"' in log
    assert [line for line in log.splitlines() if PLANTED in line] == []


def test_no_audit_row_has_a_secret(server: RunningServer, listed: dict[str, str]) -> None:
    with closing(sqlite3.connect(f"file:{server.root / 'catalog.db'}?mode=ro", uri=True)) as connection:
        rows: list[tuple[Any, ...]] = connection.execute("SELECT * FROM audit_events").fetchall()
    assert len(rows) > 20
    assert [row for row in rows if PLANTED in str(row)] == []


def test_no_file_of_a_table_has_a_secret(server: RunningServer, listed: dict[str, str]) -> None:
    files = [path for path in (server.root / "warehouse").rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if PLANTED.encode() in path.read_bytes()] == []


def test_no_command_line_has_a_secret(server: RunningServer, listed: dict[str, str]) -> None:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found[process.name] = (process / "cmdline").read_bytes()
        except OSError:
            continue
    assert b"tidemill" in found[str(server.process.pid)]
    assert [line for line in found.values() if OWNER_SECRET.encode() in line or b"planted-" in line] == []
