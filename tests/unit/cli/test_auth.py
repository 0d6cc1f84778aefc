"""`tidemill auth …`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.running import CommandLine

AT = "2030-01-02T03:04:05Z"
KEY: dict[str, Any] = {
    "client": "etl",
    "name": "nightly",
    "scope": {"permissions": ["read"], "namespace": ["sales"]},
    "created_at": AT,
    "expires_at": AT,
    "last_used_at": None,
}
NEW_KEY: dict[str, Any] = {**KEY, "secret": "tm_1", "api_key": "etl:tm_1"}
GRANT: dict[str, Any] = {
    "role": "analysts",
    "permission": "read",
    "table": ["sales", "orders"],
    "granted_by": "owner",
    "granted_at": AT,
}
ROLE: dict[str, Any] = {
    "role": "analysts",
    "description": "",
    "members": ["etl"],
    "created_by": "owner",
    "created_at": AT,
}
WHO: dict[str, Any] = {
    "principal": "etl",
    "authentication": True,
    "roles": ["analysts"],
    "grants": [GRANT],
    "key": "nightly",
    "scope": KEY["scope"],
    "expires_at": AT,
}


def test_a_client_is_created_and_its_key_printed_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = CommandLine(monkeypatch, clients={"client": "etl", "key": NEW_KEY})
    options = ["--description", "loads", "--key", "nightly", "--permissions", "read,write"]
    options += ["--namespace", "sales.eu", "--expires-in-days", "90"]
    assert line.printed("auth", "client", "create", "etl", *options).splitlines()[-1] == "etl:tm_1"
    key = {
        "name": "nightly",
        "permissions": ["read", "write"],
        "namespace": ["sales", "eu"],
        "expires_in_seconds": 90 * 86_400,
    }
    assert line.server.last() == (
        "/api/v1/auth/clients",
        {"client": "etl", "description": "loads", "key": key},
    )
    assert line.json("auth", "client", "create", "etl")["api_key"] == "etl:tm_1"


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--client", "etl", "--namespace", "sales.eu"], {"client": "etl", "namespace": ["sales", "eu"]}),
        (["--role", "analysts", "--namespace", ""], {"role": "analysts", "namespace": []}),
        (["--user", "idp:7", "--table", "sales.orders"], {"user": "idp:7", "table": ["sales", "orders"]}),
        (["--client", "etl", "--function", "sales.f"], {"client": "etl", "function": ["sales", "f"]}),
    ],
)
def test_grants_are_given_and_taken_back(
    options: list[str], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = CommandLine(monkeypatch, revoke={"revoked": 2})
    for command, path in (("grant", "grants"), ("revoke", "grants/revoke")):
        line.printed("auth", command, "read,write", *options)
        assert line.server.last() == (f"/api/v1/auth/{path}", {**body, "permissions": ["read", "write"]})


@pytest.mark.parametrize(
    "options",
    [
        ["--namespace", "a"],
        ["--client", "a"],
        ["--client", "a", "--role", "b", "--namespace", "c"],
        ["--client", "a", "--namespace", "b", "--table", "b.c"],
    ],
)
def test_a_grant_that_is_not_clear_is_not_sent(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    done = line.run("auth", "grant", "read", *options)
    assert (done.exit_code, line.server.requests) == (2, [])
    assert "exactly one of" in done.output


def test_revoking_what_was_not_granted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, revoke={"revoked": 0})
    said = line.printed("auth", "revoke", "read", "--client", "etl", "--namespace", "sales")
    assert "client etl has no such grant on namespace sales" in said


def test_names_are_escaped_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, b=ROLE)
    line.printed("auth", "role", "add-member", "analysts", "idp:a/b")
    assert line.server.asked()[-1] == ("PUT", "/api/v1/auth/roles/analysts/members/idp%3Aa%2Fb")
    line.printed("auth", "role", "remove-member", "analysts", "idp:a/b")
    assert line.server.asked()[-1][0] == "DELETE"


def test_whoami_tells_roles_grants_and_the_limits_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, whoami=WHO)
    said = line.printed("auth", "whoami")
    for words in ("etl", "analysts", "nightly", "read in sales", "2030-01-02", "table sales.orders"):
        assert words in said
    assert line.json("auth", "whoami")["grants"][0]["object"] == ["sales", "orders"]


def test_lists_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    client = {
        "client": "etl",
        "description": "loads",
        "created_by": "owner",
        "created_at": None,
        "in_settings": True,
    }
    line = CommandLine(
        monkeypatch,
        clients={"clients": [client]},
        keys={"keys": [KEY]},
        roles={"roles": [ROLE]},
        grants={"grants": [GRANT]},
    )
    for command, words in (
        (("client", "list"), "loads"),
        (("key", "list", "etl"), "read in sales"),
        (("role", "list"), "analysts"),
        (("grants", "--role", "analysts"), "table sales.orders"),
    ):
        assert words in line.printed("auth", *command)
        assert len(line.json("auth", *command)) == 1


def test_a_token_is_printed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, tokens={"access_token": "a.b.c", "expires_in": 60})
    assert line.printed("auth", "token") == "a.b.c\n"
    assert line.json("auth", "token") == {"access_token": "a.b.c", "expires_in": 60}
