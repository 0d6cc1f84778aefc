from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from tests.unit.iceberg.metadata.documents import (
    JSON,
    KEYS,
    SCHEMA,
    add,
    change,
    column,
    mutations,
    order,
    point,
    schema,
    spec,
    table,
    written,
)
from tidemill.errors import TidemillError
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.requirements import check_table_requirements, check_view_requirements
from tidemill.iceberg.metadata.tables import check_table
from tidemill.iceberg.metadata.update_kinds import TABLE_UPDATES, VIEW_UPDATES
from tidemill.iceberg.model.entries import Document

BASES = [table(1), written(3), change(written(2), {"action": "upgrade-format-version", "format-version": 3})]
ACTIONS = st.sampled_from(sorted(TABLE_UPDATES))
NAMED = st.builds(
    lambda action, more: {**more, "action": action}, ACTIONS, st.dictionaries(KEYS, JSON, max_size=5)
)

WIDER = schema(*SCHEMA["fields"], column(4, "more", "int"))
SOUND = st.sampled_from(
    [
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["a"]},
        {"action": "add-schema", "schema": WIDER},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-current-schema", "schema-id": 0},
        {"action": "remove-schemas", "schema-ids": [1]},
        {"action": "add-spec", "spec": spec(("name", 3, "identity"))},
        {"action": "add-spec", "spec": spec(("more", 4, "identity"), first_id=None)},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "set-default-spec", "spec-id": 0},
        {"action": "remove-partition-specs", "spec-ids": [1]},
        {"action": "add-sort-order", "sort-order": order((4, "identity"))},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-default-sort-order", "sort-order-id": 0},
        *(add(number, number, **{"parent-snapshot-id": 1}) for number in (4, 5, 6)),
        *(add(number, number, **{"first-row-id": number, "added-rows": 1}) for number in (4, 5)),
        *(point("main", number) for number in range(1, 6)),
        *(point("b", number) for number in range(1, 6)),
        *({"action": "remove-snapshots", "snapshot-ids": [number]} for number in range(1, 6)),
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "upgrade-format-version", "format-version": 3},
    ]
)


def attempt(base: Document | None, updates: Any) -> Document | None:
    """What becomes of it, or None when it is refused; any other error is a bug."""
    before = deepcopy(base), deepcopy(updates)
    try:
        return change(base, *updates)
    except TidemillError:
        return None
    finally:
        assert (base, updates) == before


@settings(max_examples=40, deadline=None)
@given(base=st.sampled_from([None, *BASES]), updates=st.lists(JSON | NAMED, max_size=3))
def test_any_json_is_applied_or_refused_and_the_base_is_untouched(
    base: Document | None, updates: list[Any]
) -> None:
    attempt(base, updates)


@settings(max_examples=60, deadline=None)
@given(base=st.sampled_from(BASES), updates=st.lists(SOUND.flatmap(mutations), min_size=1, max_size=2))
def test_updates_with_one_thing_wrong_are_applied_or_refused(base: Document, updates: list[Any]) -> None:
    attempt(base, updates)


@settings(max_examples=40, deadline=None)
@given(requirements=st.lists(JSON | st.dictionaries(st.just("type") | KEYS, JSON, max_size=4), max_size=3))
def test_any_json_is_a_requirement_or_refused(requirements: list[Any]) -> None:
    with suppress(TidemillError):
        check_table_requirements(BASES[1], requirements)
    with suppress(TidemillError):
        check_view_requirements({}, requirements)


@settings(max_examples=60, deadline=None)
@given(base=st.sampled_from(BASES), updates=st.lists(SOUND, min_size=1, max_size=8))
def test_whatever_is_accepted_makes_a_table_that_can_be_read(base: Document, updates: list[Document]) -> None:
    changed = attempt(base, updates)
    if changed is None or changed is base:
        return
    check_table(changed)
    assert TableMetadataUtil.parse_obj(changed).format_version == changed["format-version"]
    log, current = changed["snapshot-log"], changed["current-snapshot-id"]
    assert current in (None, -1) or log[-1]["snapshot-id"] == current


def test_every_update_of_the_specification_is_known() -> None:
    assert (len(TABLE_UPDATES), len(VIEW_UPDATES)) == (23, 8)


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        ({"action": "add-luck"}, r"Cannot convert metadata update action to json: updates\[1\]: add-luck"),
        ({}, r"Cannot parse metadata update. Missing field: updates\[1\].action"),
        ({"action": 3}, r"updates\[1\].action: 3"),
        ("set-location", r"Cannot parse updates\[1\] from a non-object"),
        ({"action": "add-view-version"}, "Cannot apply update AddViewVersion to a table"),
    ],
)
def test_an_unknown_update_is_refused_before_others_are_looked_at(update: Any, problem: str) -> None:
    impossible = {"action": "set-current-schema", "schema-id": 99}
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(), impossible, update)


def test_names_of_updates_have_no_case() -> None:
    assert change(table(), {"action": "Set-Properties", "updates": {"a": "b"}})["properties"]["a"] == "b"
