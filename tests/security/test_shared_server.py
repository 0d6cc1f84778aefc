"""A team with one namespace attacks the server that it shares, over HTTP and with the default isolation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tidemill
from tests.conftest import RunningServer, start_server
from tests.e2e.tables import TIMEOUT
from tidemill.functions.isolation import confinement
from tidemill.sdk.errors import InvalidRequest

ATTACK_CLASS = "a team against the server it shares"
PLANTED = "planted-7f3a9c"
SECRET = "long-enough-for-a-secret"
CLIENTS = {
    "owner": {"secret": SECRET},
    "team": {"secret": SECRET, "grants": {"team_b": ["write", "compute", "function"], "": ["read"]}},
}
needs_sandbox = pytest.mark.skipif(
    confinement.find_problem() is not None, reason="this machine has no sandboxes: see `tidemill doctor`"
)


class Loot(NamedTuple):
    loot: str


def stolen(root: str) -> str:
    """What a function can find of what the worker has."""
    import os
    import socket
    from pathlib import Path

    found = [name for name in os.environ if name.startswith(("TIDEMILL", "AWS"))]
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += ["environment"] if b"TIDEMILL" in process.read_bytes() else []
        except OSError:
            continue
    found += [str(path) for path in Path(root).rglob("*") if path.is_file()]
    try:
        socket.create_connection(("127.0.0.1", int(root.rpartition(":")[2])), timeout=2)
        found.append("network")
    except (OSError, ValueError):
        pass
    return " ".join(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("shared"),
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        TIDEMILL_FUNCTION_ISOLATION="sandbox",
        AWS_SECRET_ACCESS_KEY=PLANTED,
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def team(server: RunningServer) -> Iterator[tidemill.Lake]:
    with tidemill.connect(server.url, credential=f"owner:{SECRET}") as owner:
        owner.create_namespace("team_b")
    with tidemill.connect(server.url, credential=f"team:{SECRET}") as lake:
        yield lake


@pytest.fixture(scope="module")
def docs(team: tidemill.Lake, server: RunningServer) -> tidemill.Table:
    port = server.url.rpartition(":")[2]
    rows = [{"id": 1, "root": str(server.root)}, {"id": 2, "root": f"x:{port}"}]
    return team.create_table("team_b.docs", rows)


@pytest.mark.parametrize(
    "variable", ["env:AWS_SECRET_ACCESS_KEY", "env:TIDEMILL_CLIENTS", "system:user.home", "spark.app.id"]
)
def test_a_view_holds_the_name_of_a_variable_and_not_its_value(
    team: tidemill.Lake, docs: tidemill.Table, variable: str
) -> None:
    name = f"team_b.v_{variable.replace(':', '_').replace('.', '_').lower()}"
    statement = f"SELECT id, '${{{variable}}}' AS q, count(*) AS n FROM team_b.docs GROUP BY id"
    view = team.create_materialized_view(name, statement)
    view.refresh().wait(TIMEOUT)
    assert {row["q"] for row in view.query().to_pylist()} == {f"${{{variable}}}"}


@pytest.mark.parametrize(
    "call",
    [
        "`java_method`('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')",
        "`Reflect`('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')",
        "system.builtin.reflect('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')",
        "try_reflect/**/('java.lang.System', 'load', '/tmp/x.so')",
    ],
)
def test_a_view_runs_no_java(team: tidemill.Lake, docs: tidemill.Table, call: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(?i)java_method|reflect"):
        team.create_materialized_view("team_b.java", f"SELECT id, {call} AS q FROM team_b.docs")


@needs_sandbox
def test_a_function_finds_no_key_to_sign_a_token_with(docs: tidemill.Table) -> None:
    docs.add_column("loot", tidemill.udf(stolen))
    docs.backfill("loot").wait(TIMEOUT)
    assert [row["loot"] for row in docs.query(columns=["loot"]).to_pylist()] == ["", ""]


@needs_sandbox
def test_a_table_function_finds_no_key_to_sign_a_token_with(
    team: tidemill.Lake, docs: tidemill.Table, server: RunningServer
) -> None:
    root = str(server.root)

    @tidemill.udtf
    def steal(source) -> Iterator[Loot]:  # type: ignore[no-untyped-def]  # as users write it
        yield Loot(f"{stolen(root)}{source.count_rows()}")

    view = team.create_materialized_view("team_b.loot", steal.over(docs))
    view.refresh().wait(TIMEOUT)
    assert [row["loot"] for row in view.query().to_pylist()] == ["2"]


def test_no_planted_secret_is_in_logs(server: RunningServer, docs: tidemill.Table) -> None:
    log = (Path(server.root) / "server.log").read_text()
    assert PLANTED not in log
    assert SECRET not in log
