"""Settings come from one place, and nonsense is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tidemill.errors import InvalidInput
from tidemill.jobs.worker.auto_jobs import AutoRefreshPolicy
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
