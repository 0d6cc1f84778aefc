"""What a function finds where it runs: packages and variables of its manifest, nothing of the worker's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

import tidemill
from tests.conftest import LEASE, RunningServer
from tests.e2e.packages import wheel
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, refreshed
from tests.e2e.view_kinds import created, rows_of
from tidemill.sdk.errors import InvalidRequest


@pytest.fixture
def package(tmp_path: Path) -> tuple[str, str]:
    """A package of the test's own: its name, and the requirement that installs it."""
    name = f"tiny_{uuid4().hex[:8]}"
    return name, wheel(tmp_path, name, "HEIGHT = 7\n")


def importing(module: str, packages: tuple[str, ...] = ()) -> Any:
    """A function that imports a module when it is called."""

    @tidemill.udf(packages=packages)
    def height(id: int) -> int:
        import importlib

        return id + int(importlib.import_module(module).HEIGHT)

    return height


@tidemill.udf
def names_of_variables(id: int) -> list[str]:
    import os

    return sorted(os.environ)


@tidemill.udf
def greeting(id: int) -> str | None:
    import os

    return os.environ.get("GREETING")


def installations(server: RunningServer) -> set[str]:
    folder = server.root / "environments"
    return {entry.name for entry in folder.iterdir() if entry.is_dir()} if folder.exists() else set()


def test_a_package_of_a_manifest_can_be_imported(make: Maker, package: tuple[str, str]) -> None:
    name, requirement = package
    table = make.numbered(2)
    table.add_column("height", importing(name))
    filled(table, "height", manifest=tidemill.Manifest(pip=[requirement]))
    assert by_id(table, "height") == {0: 7, 1: 8}


def test_a_package_is_not_there_for_jobs_that_do_not_ask_for_it(
    make: Maker, package: tuple[str, str]
) -> None:
    name, requirement = package
    table = make.numbered(2)
    table.add_column("height", importing(name))
    filled(table, "height", manifest=tidemill.Manifest(pip=[requirement]), where="id = 0")
    with pytest.raises(tidemill.JobFailed, match=name):
        filled(table, "height")


def test_a_package_is_installed_once_for_several_jobs(
    make: Maker, package: tuple[str, str], server: RunningServer
) -> None:
    name, requirement = package
    before = installations(server)
    table = make.numbered(2, 2)
    table.add_column("height", importing(name))
    manifest = tidemill.Manifest(pip=[requirement])
    filled(table, "height", where="id < 2", manifest=manifest)
    [installed] = installations(server) - before
    made_at = (server.root / "environments" / installed).stat().st_ctime_ns
    filled(table, "height", manifest=manifest)
    assert installations(server) - before == {installed}
    assert (server.root / "environments" / installed).stat().st_ctime_ns == made_at


@pytest.fixture
def stored(lake: tidemill.Lake, package: tuple[str, str]) -> Iterator[str]:
    """The name of a manifest with the package and a variable."""
    name = f"manifest-{uuid4().hex[:8]}"
    lake.put_manifest(name, pip=[package[1]], env={"GREETING": "good tide"})
    yield name
    if name in {manifest.name for manifest in lake.list_manifests()}:
        lake.drop_manifest(name)


def test_a_stored_manifest_is_used_by_its_name(make: Maker, stored: str, package: tuple[str, str]) -> None:
    table = make.numbered(1)
    table.add_column("height", importing(package[0]))
    table.add_column("greeting", greeting)
    filled(table, "height", manifest=stored)
    filled(table, "greeting", manifest=stored)
    assert by_id(table, "height") == {0: 7}
    assert by_id(table, "greeting") == {0: "good tide"}


def test_a_stored_manifest_is_listed_without_the_values_of_its_variables(
    lake: tidemill.Lake, stored: str, package: tuple[str, str]
) -> None:
    [listed] = [manifest for manifest in lake.list_manifests() if manifest.name == stored]
    assert (listed.pip, listed.env) == ((package[1],), ("GREETING",))
    assert "good tide" not in repr(listed)


def test_a_manifest_that_was_dropped_is_refused(make: Maker, lake: tidemill.Lake, stored: str) -> None:
    table = make.numbered(1)
    table.add_column("greeting", greeting)
    lake.drop_manifest(stored)
    with pytest.raises(InvalidRequest, match="manifest"):
        table.backfill("greeting", manifest=stored)


def test_a_manifest_may_be_json_in_the_request(make: Maker) -> None:
    table = make.numbered(1)
    table.add_column("greeting", greeting)
    filled(table, "greeting", manifest='{"env_vars": {"GREETING": "low tide"}}')
    assert by_id(table, "greeting") == {0: "low tide"}


def test_variables_of_one_job_are_not_there_for_the_next(make: Maker) -> None:
    table = make.numbered(2)
    table.add_column("greeting", greeting)
    filled(table, "greeting", where="id = 0", manifest=tidemill.Manifest(env={"GREETING": "spring"}))
    filled(table, "greeting")
    assert by_id(table, "greeting") == {0: "spring", 1: None}


def test_a_preview_finds_what_its_manifest_says(make: Maker) -> None:
    table = make.numbered(1)
    table.add_column("greeting", greeting)
    manifest = tidemill.Manifest(env={"GREETING": "neap"})
    shown = table.preview("greeting", manifest=manifest, timeout=TIMEOUT).to_arrow()
    assert shown.column("greeting").to_pylist() == ["neap"]


def test_a_package_that_does_not_exist_fails_the_job_and_is_named(make: Maker, tmp_path: Path) -> None:
    table = make.numbered(1)
    table.add_column("greeting", greeting)
    absent = f"no_such_thing @ {(tmp_path / 'no_such_thing-1.0-py3-none-any.whl').as_uri()}"
    with pytest.raises(tidemill.JobFailed, match="no_such_thing") as failed:
        filled(table, "greeting", manifest=tidemill.Manifest(pip=[absent]))
    assert failed.value.exception == "EnvironmentFailed"
    assert "cannot be installed" in str(failed.value)
    assert table.column_status("greeting").missing == 1


def test_packages_a_function_was_declared_with_are_there_without_a_manifest(
    make: Maker, package: tuple[str, str]
) -> None:
    name, requirement = package
    table = make.numbered(2)
    table.add_column("height", importing(name, (requirement,)))
    filled(table, "height")
    assert by_id(table, "height") == {0: 7, 1: 8}


def test_a_function_sees_nothing_of_the_environment_of_the_server(make: Maker) -> None:
    table = make.numbered(1)
    table.add_column("names", names_of_variables)
    filled(table, "names", manifest=tidemill.Manifest(env={"GREETING": "slack"}))
    names = set(by_id(table, "names")[0])
    assert names.isdisjoint(LEASE)
    assert names - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "GREETING"}


@tidemill.udf
def digest_of_key(id: int) -> str:
    import hashlib
    import os

    return hashlib.sha256(os.environ["PLANTED_KEY"].encode()).hexdigest()


class Digest(NamedTuple):
    digest: str


@tidemill.chunker
def digests_of_key(id: int) -> Iterator[Digest]:
    import hashlib
    import os

    yield Digest(hashlib.sha256(os.environ["PLANTED_KEY"].encode()).hexdigest())


def test_values_of_variables_are_nowhere_at_rest(
    make: Maker, lake: tidemill.Lake, server: RunningServer
) -> None:
    """Not in the database, its log, the server's log, job files, tables, or any command line."""
    stored, inline, of_view = (f"planted-{uuid4().hex}" for _ in range(3))
    table = make.numbered(2)
    table.add_column("digest", digest_of_key)
    lake.put_manifest("planted", env={"PLANTED_KEY": stored})
    filled(table, "digest", where="id = 0", manifest="planted")
    manifest = tidemill.Manifest(env={"PLANTED_KEY": inline})
    filled(table, "digest", where="id = 1", manifest=manifest)
    of_view_manifest = tidemill.Manifest(env={"PLANTED_KEY": of_view})
    view = created(make, table.chunk(digests_of_key), manifest=of_view_manifest)
    refreshed(view)

    def digest(value: str) -> str:
        return hashlib.sha256(value.encode()).hexdigest()

    assert by_id(table, "digest") == {0: digest(stored), 1: digest(inline)}
    assert rows_of(view, "digest") == [(digest(of_view),)] * 2
    with httpx.Client(base_url=server.url) as http:
        answers = [http.get(path).text for path in ("/api/v1/jobs", "/api/v1/manifests")]
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    places = [path for path in server.root.rglob("*") if path.is_file()]
    assert any(place.name == "catalog.db" for place in places)
    held = [*(place.read_bytes() for place in places if place.exists()), *commands]
    held += [answer.encode() for answer in answers]
    for value in (stored, inline, of_view):
        assert not any(value.encode() in content for content in held)
    lake.drop_manifest("planted")
