"""Schemas, and the updates of them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from tests.unit.iceberg.metadata.documents import SCHEMA, change, column, schema, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.schemas import check_version, fresh_schema, get_columns, same_schema

POINT = {"type": "struct", "fields": [column(11, "x", "double", required=True)]}
NUMBERS = {"type": "list", "element-id": 12, "element": "int", "element-required": False}
BY_NAME = {
    "type": "map",
    "key-id": 13,
    "key": "string",
    "value-id": 14,
    "value": POINT,
    "value-required": True,
}


def test_the_id_of_a_schema_does_not_make_it_another() -> None:
    assert same_schema(schema(column(1, "a", "int"), **{"schema-id": 4}), schema(column(1, "a", "int")))


def test_a_field_that_is_null_is_one_that_is_absent() -> None:
    assert same_schema(schema({**column(1, "a", "int"), "doc": None}), schema(column(1, "a", "int")))


def test_types_are_compared_without_their_spaces() -> None:
    assert same_schema(schema(column(1, "a", "decimal(9, 2)")), schema(column(1, "a", "decimal(9,2)")))


@pytest.mark.parametrize(
    "other",
    [
        schema(column(2, "a", "int")),
        schema(column(1, "b", "int")),
        schema(column(1, "a", "long")),
        schema(column(1, "a", "int", required=True)),
        schema({**column(1, "a", "int"), "doc": "of a"}),
        schema({**column(1, "a", "int"), "added-later": 1}),
        schema(column(1, "a", "int"), column(2, "b", "int")),
    ],
)
def test_another_field_makes_another_schema(other: Any) -> None:
    assert not same_schema(schema(column(1, "a", "int")), other)


def test_identifier_fields_have_no_order() -> None:
    fields = column(1, "a", "int", required=True), column(2, "b", "int", required=True)
    left = schema(*fields, **{"identifier-field-ids": [1, 2]})
    assert same_schema(left, schema(*fields, **{"identifier-field-ids": [2, 1]}))
    assert not same_schema(left, schema(*fields, **{"identifier-field-ids": [1]}))


def test_columns_are_found_at_every_depth() -> None:
    columns = get_columns(schema(column(1, "where", BY_NAME), column(2, "n", NUMBERS)), "schema")
    assert {field_id: found.name for field_id, found in columns.items()} == {
        1: "where",
        13: "where.key",
        14: "where.value",
        11: "where.value.x",
        2: "n",
        12: "n.element",
    }


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"type": "struct"}, "missing field: schema.fields"),
        (schema({"name": "a", "required": True, "type": "int"}), r"missing int: schema.fields\[0\].id"),
        (schema({"id": True, "name": "a", "required": True, "type": "int"}), r"schema.fields\[0\].id: true"),
        (schema({"id": 1, "required": True, "type": "int"}), r"schema.fields\[0\].name"),
        (schema({"id": 1, "name": "a", "type": "int"}), r"missing boolean: schema.fields\[0\].required"),
        (schema(column(1, "a", "integer")), r"type string to primitive: schema.fields\[0\].type: integer"),
        (schema(column(1, "a", {"type": "set"})), "Cannot parse type from json"),
        (schema(column(1, "a", "decimal(39, 2)")), "precision larger than 38"),
        (schema(column(1, "a", "int"), column(1, "b", "int")), "multiple fields for id 1: a and b"),
        (schema(column(1, "a", "int"), column(2, "a", "int")), "multiple fields for name a: 1 and 2"),
        (schema(column(1, "a", "unknown", required=True)), "required field with unknown type: a"),
        (schema(column(1, "a", "int"), **{"schema-id": "0"}), "schema.schema-id"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_path(broken: Any, problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        get_columns(broken, "schema")


@pytest.mark.parametrize(
    ("identifier", "problem"),
    [
        (9, "fieldId 9 as an identifier field: field does not exist"),
        (1, "field a as an identifier field: not a required field"),
        (2, "field b as an identifier field: must not be float or double field"),
        (3, "field p as an identifier field: not a primitive type field"),
        (11, "field p.x as an identifier field: must not be float or double field"),
    ],
)
def test_an_identifier_field_has_to_be_fit_for_it(identifier: int, problem: str) -> None:
    fields = (
        column(1, "a", "int"),
        column(2, "b", "double", required=True),
        column(3, "p", POINT, required=True),
    )
    with pytest.raises(InvalidMetadata, match=problem):
        get_columns(schema(*fields, **{"identifier-field-ids": [identifier]}), "schema")


@pytest.mark.parametrize("kind", ["variant", "timestamp_ns", "geometry(srid:4326)", "geography", "unknown"])
def test_types_of_v3_are_refused_before(kind: str) -> None:
    columns = get_columns(schema(column(1, "v", kind)), "schema")
    check_version(columns, 3)
    with pytest.raises(InvalidMetadata) as refusal:
        check_version(columns, 2)
    problem = f"Invalid type for v: {kind} is not supported until v3"
    assert str(refusal.value) == f"Invalid schema for v2:\n- {problem}"


def test_default_values_are_refused_before_v3() -> None:
    columns = get_columns(schema({**column(1, "v", "int"), "initial-default": 0}), "schema")
    check_version(columns, 3)
    with pytest.raises(InvalidMetadata, match="Invalid initial default for v"):
        check_version(columns, 2)


def test_fresh_ids_keep_what_is_not_understood() -> None:
    renewed, _ = fresh_schema(
        schema({**column(5, "a", "int"), "x-note": {"id": 5}}, **{"x-more": 1}), count(1).__next__
    )
    assert renewed["x-more"] == 1
    assert renewed["fields"] == [{**column(1, "a", "int"), "x-note": {"id": 5}}]


def kinds(depth: int) -> st.SearchStrategy[Any]:
    primitives = st.sampled_from(["int", "string", "decimal(9, 2)", "fixed[4]", "timestamptz"])
    if depth == 0:
        return primitives
    inner = kinds(depth - 1)
    return st.one_of(
        primitives,
        inner.map(lambda kind: {"type": "list", "element-id": 0, "element": kind, "element-required": True}),
        st.builds(
            lambda key, kind: {
                "type": "map",
                "key-id": 0,
                "key": key,
                "value-id": 0,
                "value": kind,
                "value-required": False,
            },
            primitives,
            inner,
        ),
        st.lists(inner, min_size=1, max_size=3).map(struct_of),
    )


def struct_of(types: list[Any]) -> Any:
    return {"type": "struct", "fields": [column(0, f"f{at}", kind) for at, kind in enumerate(types)]}


def scrambled(kind: Any, ids: Any) -> Any:
    """The same type with ids of its own, given from the inside out."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{**field, "type": scrambled(field["type"], ids)} for field in kind["fields"]]
        return {**kind, "fields": [{**field, "id": next(ids)} for field in fields]}
    parts = ["element"] if kind["type"] == "list" else ["value", "key"]
    inner = {part: scrambled(kind[part], ids) for part in parts}
    return {**kind, **inner, **{f"{part}-id": next(ids) for part in parts}}


@settings(max_examples=40, deadline=None)
@given(st.lists(kinds(3), min_size=1, max_size=4))
def test_fresh_ids_are_those_that_pyiceberg_gives(types: list[Any]) -> None:
    described = scrambled(struct_of(types), count(40))
    renewed, fresh = fresh_schema(described, count(1).__next__)
    theirs = assign_fresh_schema_ids(Schema.model_validate(described))
    assert Schema.model_validate(renewed) == theirs
    assert sorted(fresh.values()) == list(range(1, len(fresh) + 1))


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
