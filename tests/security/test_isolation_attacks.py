"""Users' code tries to become admin, and gets nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import lance
import pyarrow as pa
import pytest

import tidemill
from tests.security.counting import count_attack
from tests.security.isolation_attacks import (
    ATTACKS,
    MEMORY_BYTES,
    PROCESSES,
    STEALING,
    Carrier,
    Loot,
    Outcome,
    Target,
    run_attacks,
    target_in,
)
from tests.unit.functions.calls import SKIP, computed, text_call
from tidemill.catalog.model.functions import Environment
from tidemill.functions.api import CallSettings, FunctionRaised
from tidemill.functions.isolation import confinement
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.functions.isolation.sandbox import Limits
from tidemill.functions.isolation.table_calls import isolated_batches
from tidemill.spark.views.table_functions import TableSource

pytestmark = pytest.mark.skipif(
    confinement.find_problem() is not None, reason="this machine has no sandboxes: see `tidemill doctor`"
)


def host_of(target: Target, isolation: Isolation = Isolation.SANDBOX) -> FunctionHost:
    return FunctionHost(
        isolation,
        memory_bytes=MEMORY_BYTES if isolation is Isolation.SANDBOX else None,
        hidden=(str(target.root),),
        limits=Limits(processes=PROCESSES),
        call_seconds=20,
        is_strict=True,
    )


def as_function(host: FunctionHost) -> Carrier:
    def run(source: str) -> str:
        call = text_call(f"{source}\ndef f(x): return attack() or ''", value_type=pa.string())
        return computed(call, [1], CallSettings(host, SKIP)).values[0].as_py() or ""

    return run


def as_table_function(host: FunctionHost, folder: Path) -> Carrier:
    lance.write_dataset(pa.table({"x": range(1000)}), folder / "source.lance")
    source = TableSource(
        lance.dataset(folder / "source.lance"), {"x": "x"}, None, None, None, on_rows=lambda _: None
    )

    def run(text: str) -> str:
        @tidemill.udtf
        def steal(source) -> Iterator[Loot]:  # type: ignore[no-untyped-def]  # as users write it
            names: dict[str, Any] = {}
            exec(text, names)
            rows = source.where("x > 9").count_rows()
            yield Loot(names["attack"]() or "", rows)

        function = steal.function
        try:
            [row] = [
                row
                for batch in isolated_batches(function, source, function.output, host, Environment())
                for row in batch.to_pylist()
            ]
        except FunctionRaised:
            return ""
        assert row["rows"] == 990
        return str(row["loot"])

    return run


def attack_everything() -> dict[str, Outcome]:
    """Runs all attacks; the outcomes by how they were run."""
    with tempfile.TemporaryDirectory() as folder, target_in(Path(folder)) as target:
        host = host_of(target)
        with tempfile.TemporaryDirectory() as other:
            return {
                "function": run_attacks(target, as_function(host), ATTACKS),
                "table function": run_attacks(target, as_table_function(host, Path(other)), ATTACKS),
            }


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return attack_everything()


@pytest.mark.parametrize("carrier", ["function", "table function"])
def test_users_code_gets_nothing(carrier: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[carrier]
    for name in outcome.tried:
        count_attack(
            f"code of a {carrier}",
            status=500 if name in outcome.errors else 0,
            got_through=name in outcome.got_through,
        )
    assert outcome.tried == list(ATTACKS)
    assert outcome.got_through == {}
    assert outcome.errors == {}


def test_the_attacks_work_on_functions_without_a_sandbox(tmp_path: Path) -> None:
    with target_in(tmp_path) as target:
        outcome = run_attacks(target, as_function(host_of(target, Isolation.PROCESS)), STEALING)
    assert outcome.got_through.keys() == STEALING.keys()


def test_a_server_with_clients_refuses_functions_that_it_cannot_isolate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemill.functions.isolation.pool.find_problem", lambda _: "no namespaces")
    how = CallSettings(FunctionHost(Isolation.SANDBOX, is_strict=True))
    with pytest.raises(FunctionRaised, match="TIDEMILL_FUNCTION_ISOLATION=trusted") as raised:
        computed(text_call("def f(x): return x"), [1], how)
    assert raised.value.failure.exception == "HostFailed"


@pytest.mark.parametrize(("declared", "allowed"), [(True, False), (False, True)])
def test_a_network_needs_the_function_and_the_deployment(
    tmp_path: Path, *, declared: bool, allowed: bool
) -> None:
    with target_in(tmp_path) as target:
        assert not _connects(target, declared=declared, allowed=allowed)
        assert _connects(target, declared=True, allowed=True)


def _connects(target: Target, *, declared: bool, allowed: bool) -> bool:
    source = dedent(target.render(STEALING["network"]))
    call = text_call(f"{source}\ndef f(x): return attack() or ''", value_type=pa.string())
    call = replace(call, function=replace(call.function, declared={"network": declared}))
    how = CallSettings(replace(host_of(target), allows_network=allowed), SKIP)
    return bool(computed(call, [1], how).values[0].as_py() == "connected")


def test_the_build_of_a_package_does_not_run_as_the_worker(tmp_path: Path) -> None:
    package, planted = tmp_path / "evil", tmp_path / "planted"
    package.mkdir()
    (package / "setup.py").write_text(
        f"open({str(planted)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='evil', version='1')"
    )
    with target_in(tmp_path / "root") as target:
        host = replace(host_of(target), environments_root=str(tmp_path / "environments"))
        environment = Environment((f"evil @ {package.as_uri()}",))
        with pytest.raises(FunctionRaised, match="cannot be installed") as raised:
            computed(text_call("def f(x): return x"), [1], CallSettings(host, environment=environment))
    assert raised.value.failure.exception == "EnvironmentFailed"
    assert not planted.exists()
