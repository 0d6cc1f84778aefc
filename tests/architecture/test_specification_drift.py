"""New operations and fields of the specifications and of the published client are noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.specification.client_surface import surface
from tests.specification.drift import SERVED_AHEAD, new_in, unread_documents, unserved
from tests.specification.tables import ICEBERG, LANCE, Operation
from tidemill.protocols.iceberg.service import ICEBERG_SERVICE
from tidemill.protocols.lance.service import LANCE_SERVICE

READERS: Final = Path(__file__).parents[2] / "src" / "tidemill" / "protocols" / "lance"


def test_every_operation_of_the_lance_specification_is_served() -> None:
    assert unserved(LANCE.operations, LANCE_SERVICE) == []


def test_every_operation_of_the_iceberg_specification_is_served() -> None:
    assert unserved(ICEBERG.operations, ICEBERG_SERVICE) == []


def test_an_operation_without_a_route_is_noticed() -> None:
    made_up = Operation("Teleport", "POST", "/v1/table/{id}/teleport", {}, None, {})
    assert unserved({"Teleport": made_up}, LANCE_SERVICE) == ["Teleport"]


def test_the_installed_client_has_nothing_new() -> None:
    assert new_in(surface()) == []


def test_what_is_new_in_a_client_is_listed() -> None:
    models = {"Teleport": ["to"], "QueryTableRequest": ["k", "minimum_nprobes", "speed"]}
    client = {"operations": ["CreateTable", "Teleport"], "models": models}
    assert new_in(client) == ["operation Teleport", "model Teleport", "field QueryTableRequest.speed"]


@pytest.mark.parametrize("field", sorted(set().union(*SERVED_AHEAD.values())))
def test_a_field_ahead_of_the_document_is_read(field: str) -> None:
    assert any(f'"{field}"' in path.read_text() for path in READERS.rglob("*.py"))


def test_every_document_has_a_table() -> None:
    assert unread_documents() == []
