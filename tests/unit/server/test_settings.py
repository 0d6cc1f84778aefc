"""Settings come from one place, and nonsense is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill.catalog.model.access import Grant, role_grantee
from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.errors import InvalidInput
from tidemill.jobs.worker.auto_jobs import AutoRefreshPolicy
from tidemill.server.serve import _as_environment
from tidemill.server.settings import load_settings


def test_what_is_given_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_PORT", "9000")
    monkeypatch.setenv("TIDEMILL_HOST", "localhost")
    settings = load_settings(port=9001, host=None)
    assert (settings.port, settings.host) == (9001, "localhost")


def test_the_database_is_a_file_under_the_root_unless_said_otherwise(tmp_path: Path) -> None:
    assert load_settings(root=tmp_path).database == f"sqlite:///{tmp_path / 'catalog.db'}"
    assert load_settings(root=tmp_path, database_url="postgresql://x/y").database == "postgresql://x/y"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="prot"):
        load_settings(prot=1)


def test_a_heartbeat_that_cannot_keep_the_lease_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most half of lease_seconds"):
        load_settings(lease_seconds=4, heartbeat_seconds=3)


def test_tables_and_job_files_lie_under_the_root_unless_said_otherwise(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path)
    assert settings.warehouse_uri == str(tmp_path / "warehouse")
    assert settings.job_files == str(tmp_path / "jobs")
    elsewhere = load_settings(root=tmp_path, warehouse=str(tmp_path / "elsewhere"))
    assert elsewhere.warehouse_uri == str(tmp_path / "elsewhere")
    assert elsewhere.job_files == str(tmp_path / "jobs")


def test_job_files_go_where_the_object_store_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WAREHOUSE", "s3://lake/tables/")
    settings = load_settings()
    assert settings.warehouse_uri == "s3://lake/tables"
    assert settings.job_files == "s3://lake/tables/_jobs"


def test_other_stores_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a directory or s3://bucket/prefix"):
        load_settings(warehouse="gs://lake/tables")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"s3_vend": "sts"}, "s3_role_arn"),
        ({"s3_vend": "static"}, "s3_client_secret_access_key"),
        ({"s3_vend": "static", "s3_client_access_key_id": "id"}, "s3_client_secret_access_key"),
    ],
)
def test_a_way_to_vend_without_what_it_needs_is_refused(given: dict[str, str], missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        load_settings(warehouse="s3://lake/tables", **given)


def test_vending_without_an_object_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="s3_vend"):
        load_settings(s3_vend="static", s3_client_access_key_id="id", s3_client_secret_access_key="hidden")


def test_the_secret_of_clients_is_not_shown() -> None:
    settings = load_settings(
        warehouse="s3://lake/tables",
        s3_vend="static",
        s3_client_access_key_id="id",
        s3_client_secret_access_key="hidden",
    )
    assert settings.s3_client_secret_access_key == "hidden"
    assert "hidden" not in repr(settings)
    assert "hidden" not in str(settings)


def test_views_that_refresh_themselves_have_a_policy_of_the_deployment() -> None:
    assert load_settings().auto_refresh_policy() == AutoRefreshPolicy()
    given = load_settings(auto_refresh_rows=5, auto_refresh_fraction=0.1, auto_refresh_cooldown_seconds=2)
    assert given.auto_refresh_policy() == AutoRefreshPolicy(5, 0.1, timedelta(seconds=2))


@pytest.mark.parametrize(
    "given",
    [{"auto_refresh_rows": 0}, {"auto_refresh_fraction": -0.1}, {"auto_refresh_poll_seconds": 0}],
)
def test_a_senseless_policy_for_views_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(given))):
        load_settings(**given)


@pytest.mark.parametrize("separator", ["", "a", "1", "%", "+", ",", "..", " ", "\x1e"])
def test_a_separator_that_could_not_be_told_from_names_is_refused(separator: str) -> None:
    with pytest.raises(InvalidInput, match="namespace_separator"):
        load_settings(namespace_separator=separator)


def test_the_separator_of_namespaces_may_be_chosen() -> None:
    assert load_settings().namespace_separator == "\x1f"
    assert load_settings(namespace_separator=".").namespace_separator == "."


def test_a_server_with_clients_does_not_run_functions_in_its_tasks() -> None:
    clients = {"etl": {"secret": "s3cret"}}
    with pytest.raises(InvalidInput, match="trusted"):
        load_settings(clients=clients, function_isolation="none")
    assert load_settings(clients=clients, function_isolation="trusted").function_isolation == "trusted"


def test_functions_are_refused_without_a_sandbox_where_clients_may_be() -> None:
    clients = {"etl": {"secret": "s3cret"}}
    assert load_settings(clients=clients, exit_with_stdin=True).function_host().is_strict
    assert load_settings().function_host().is_strict
    assert not load_settings(exit_with_stdin=True).function_host().is_strict


def test_functions_never_see_the_root(tmp_path: Path) -> None:
    assert str(tmp_path.resolve()) in load_settings(root=tmp_path).function_host().hidden


def test_others_cannot_reach_a_server_with_short_secrets() -> None:
    clients = {"ada": {"secret": "x" * 15}}
    assert load_settings(clients=clients).clients
    with pytest.raises(
        InvalidInput, match=r"clients\.ada\.secret: must have at least 16 characters"
    ) as refused:
        load_settings(clients=clients, host="0.0.0.0")
    assert "xxx" not in str(refused.value)
    assert load_settings(clients={"ada": {"secret": "x" * 16}}, host="0.0.0.0").clients


def issuer(**changed: object) -> dict[str, object]:
    return {"name": "corp", "issuer": "https://login.example.org", "audience": "lake", **changed}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"issuer": "http://login.example.org"}, r"oidc_issuers\.0\.issuer: must be an https:// address"),
        ({"issuer": "https://me@login.example.org"}, r"0\.issuer: must have no user, query or fragment"),
        ({"name": "Corp:x"}, r"oidc_issuers\.0\.name: must be 1 to 32 lower-case letters"),
        ({"audience": []}, r"oidc_issuers\.0\.audience: .*at least 1 item"),
        ({"algorithms": ["HS256"]}, r"oidc_issuers\.0\.algorithms\.0: .*'RS256'"),
        ({"roles": {"a": "two words"}}, r"oidc_issuers\.0\.roles\.a: must be 1 to 128 printable ASCII"),
        ({"roles": {}, "role_prefix": ""}, r"oidc_issuers\.0\.role_prefix: cannot be combined with roles"),
        ({"grants": {"r": {"a..b": ["read"]}}}, r"oidc_issuers\.0\.grants\.'a\.\.b'"),
        ({"grants": {"r": {"": ["reed"]}}}, r"oidc_issuers\.0\.grants\.r\.\.0: .*'read'"),
        ({"ca_file": "/nowhere.pem"}, r"oidc_issuers\.0\.ca_file: /nowhere\.pem is not a file"),
        ({"secret": "x"}, r"oidc_issuers\.0\.secret: Extra inputs are not permitted"),
    ],
)
def test_an_issuer_that_cannot_be_trusted_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_settings(oidc_issuers=[issuer(**changed)])


@pytest.mark.parametrize("field", ["name", "issuer"])
def test_two_issuers_that_could_be_taken_for_each_other_are_refused(field: str) -> None:
    other = issuer(name="other", issuer="https://other.example.org")
    assert len(load_settings(oidc_issuers=[issuer(), other]).oidc_issuers) == 2
    with pytest.raises(InvalidInput, match=rf"oidc_issuers\.1\.{field}: .* is there twice"):
        load_settings(oidc_issuers=[issuer(), {**other, field: issuer()[field]}])


def test_roles_of_issuers_have_the_grants_of_the_settings() -> None:
    access = load_settings(oidc_issuers=[issuer(grants={"corp:ops": {"a.b": ["read", "read"]}})]).access()
    assert access.has_authentication
    assert access.grants == (Grant(role_grantee("corp:ops"), Permission.READ, NamespacePath(("a", "b"))),)


@pytest.mark.parametrize("given", [{"function_isolation": "none"}, {"query_processes": 0}])
def test_issuers_alone_are_authentication(given: dict[str, Any]) -> None:
    assert load_settings(**given)
    with pytest.raises(InvalidInput, match=f"{next(iter(given))}: .*a server with authentication"):
        load_settings(oidc_issuers=[issuer()], **given)


@pytest.mark.parametrize(
    ("given", "missing"), [("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")]
)
def test_a_certificate_needs_its_key(given: str, missing: str) -> None:
    with pytest.raises(InvalidInput, match=f"{missing}: is required when {given} is set"):
        load_settings(**{given: "some.pem"})


def test_children_get_issuers_as_they_are() -> None:
    given = load_settings(oidc_issuers=[issuer(grants={"r": {"": ["admin"]}}, roles_claim="groups")])
    again = json.loads(_as_environment(given)["TIDEMILL_OIDC_ISSUERS"])
    assert load_settings(oidc_issuers=again).oidc_issuers == given.oidc_issuers
