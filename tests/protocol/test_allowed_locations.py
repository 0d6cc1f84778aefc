"""Tables that lie outside the warehouse, in a place the operator has allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import lance
import orjson
import pytest

from tests.conftest import start_server
from tests.protocol.wire import check_refusal, some_rows, stream


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outside")


@pytest.fixture(scope="module")
def http(outside: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    allowed = orjson.dumps([str(outside)]).decode()
    running = start_server(tmp_path_factory.mktemp("lake"), "--no-worker", TIDEMILL_ALLOWED_LOCATIONS=allowed)
    with httpx.Client(base_url=running.url, timeout=60) as client:
        yield client
    running.stop()


def test_a_table_is_registered_written_and_kept(http: httpx.Client, outside: Path) -> None:
    place = outside / "t.lance"
    lance.write_dataset(some_rows(), place)
    registered = http.post("/v1/table/t/register", json={"location": str(place)})
    assert registered.status_code == 200, registered.text
    assert http.post("/v1/table/t/insert", content=stream(some_rows(4))).json()["version"] == 2
    assert lance.dataset(place).count_rows() == 6
    check_refusal(http.post("/v1/table/t/drop"), 409, 19)
    assert http.post("/v1/table/t/deregister", json={}).status_code == 200
    assert lance.dataset(place).count_rows() == 6


@pytest.mark.parametrize("place", ["", "/..", "/../secret.lance", "x.lance"])
def test_no_other_place_is_allowed(http: httpx.Client, outside: Path, place: str) -> None:
    location = f"{outside}{place}"
    check_refusal(http.post("/v1/table/u/register", json={"location": location}), 400, 13, "location")


def test_a_link_does_not_lead_out(http: httpx.Client, outside: Path, tmp_path: Path) -> None:
    lance.write_dataset(some_rows(), tmp_path / "secret.lance")
    (outside / "link.lance").symlink_to(tmp_path / "secret.lance")
    location = str(outside / "link.lance")
    check_refusal(http.post("/v1/table/u/register", json={"location": location}), 400, 13, "location")
