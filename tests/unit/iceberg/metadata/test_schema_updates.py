from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import SCHEMA, change, column, schema, table
from tidemill.iceberg.errors import InvalidMetadata

WIDER = schema(*SCHEMA["fields"], column(9, "more", "int"))
ADD_WIDER = {"action": "add-schema", "schema": {**WIDER, "schema-id": 0}}


def use(schema_id: int) -> dict[str, Any]:
    return {"action": "set-current-schema", "schema-id": schema_id}


def test_an_added_schema_gets_the_next_id_whatever_the_client_says() -> None:
    changed = change(table(), ADD_WIDER)
    assert [known["schema-id"] for known in changed["schemas"]] == [0, 1]
    assert (changed["current-schema-id"], changed["last-column-id"]) == (0, 9)


def test_the_last_added_schema_can_be_made_current() -> None:
    assert change(table(), ADD_WIDER, use(-1))["current-schema-id"] == 1


def test_a_schema_that_is_there_already_counts_as_the_last_added() -> None:
    base = change(table(), ADD_WIDER)
    changed = change(base, ADD_WIDER, use(-1))
    assert changed["schemas"] == base["schemas"]
    assert changed["current-schema-id"] == 1


def test_replaying_a_commit_changes_nothing() -> None:
    base = change(table(), ADD_WIDER, use(-1))
    assert change(base, ADD_WIDER, use(-1)) is base


def test_the_last_added_schema_needs_one() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot set last added schema: no schema has been added"):
        change(table(), use(-1))


def test_an_unknown_schema_cannot_be_current() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot set current schema to unknown schema: 5"):
        change(table(), use(5))


def test_a_schema_has_to_fit_the_format_version() -> None:
    added = {"action": "add-schema", "schema": schema(column(9, "v", "variant"))}
    with pytest.raises(InvalidMetadata, match="variant is not supported until v3"):
        change(table(), added)
    assert change(table(3), added)["last-column-id"] == 9


def test_removing_schemas_passes_over_those_that_are_gone() -> None:
    base = change(table(), ADD_WIDER, use(-1))
    changed = change(base, {"action": "remove-schemas", "schema-ids": [0, 7]})
    assert [known["schema-id"] for known in changed["schemas"]] == [1]


def test_the_current_schema_cannot_be_removed() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot remove the current schema"):
        change(table(), {"action": "remove-schemas", "schema-ids": [0]})


def test_a_table_of_v1_shows_its_current_schema_to_old_readers() -> None:
    changed = change(table(1), ADD_WIDER, use(-1))
    assert changed["schema"] == changed["schemas"][1]
