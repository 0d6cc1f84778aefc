"""Names in paths and bodies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.datastructures import Headers, QueryParams

from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR, NamespacePath, TableIdent
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.mapping import (
    ident_from_body,
    ident_in,
    namespace_of,
    table_of,
    view_of,
)

TAX = NamespacePath(("accounting", "tax"))


def call(separator: str = LEVEL_SEPARATOR, /, **parameters: str) -> Call:
    operations = cast(Operations, SimpleNamespace(namespace_separator=separator))
    return Call(operations, LOCAL_CALLER, Limits(), parameters, QueryParams(), Headers(), b"")


def test_levels_are_separated_by_the_unit_separator() -> None:
    assert namespace_of(call(namespace="accounting\x1ftax")) == TAX


def test_a_dot_is_part_of_a_name() -> None:
    assert namespace_of(call(namespace="a.b")) == NamespacePath(("a.b",))


@pytest.mark.parametrize(
    ("raw", "levels"),
    [("a.b", ("a", "b")), ("a", ("a",)), ("a\x1fb", ("a", "b")), ("a.b\x1fc", ("a.b", "c"))],
)
def test_another_separator_may_be_set_and_the_unit_separator_still_counts(
    raw: str, levels: tuple[str, ...]
) -> None:
    assert namespace_of(call(".", namespace=raw)) == NamespacePath(levels)


def test_tables_and_views_are_named_in_a_namespace() -> None:
    assert table_of(call(namespace="accounting\x1ftax", table="paid")) == TableIdent(TAX, "paid")
    assert view_of(call(namespace="accounting\x1ftax", view="v w")) == TableIdent(TAX, "v w")


@pytest.mark.parametrize("raw", ["", "a\x1f", "\x1fa", "a\x1f\x1fb", "..", "a\nb"])
def test_a_namespace_without_a_usable_name_is_refused(raw: str) -> None:
    with pytest.raises(InvalidInput, match="namespace"):
        namespace_of(call(namespace=raw))


@pytest.mark.parametrize("raw", ["a\x1fb", "..", "x" * 256])
def test_a_table_without_a_usable_name_is_refused(raw: str) -> None:
    with pytest.raises(InvalidInput, match="table"):
        table_of(call(namespace="a", table=raw))


def test_a_body_names_its_namespace_as_a_list() -> None:
    body = Fields({"namespace": ["accounting", "tax"], "name": "paid"})
    assert ident_from_body(body) == TableIdent(TAX, "paid")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "t"}, "source.namespace"),
        ({"namespace": [], "name": "t"}, "source.namespace"),
        ({"namespace": "a", "name": "t"}, "source.namespace"),
        ({"namespace": ["a"]}, "source.name"),
        ({"namespace": ["a"], "name": ""}, "source.name"),
        ({"namespace": ["a"], "name": 1}, "source.name"),
        ({"namespace": ["a"], "name": "."}, "source.name"),
    ],
)
def test_an_identifier_that_names_no_table_is_refused_by_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        ident_from_body(Fields(body, "source"))
    assert refusal.value.field == field


def test_a_name_in_a_body_is_taken_as_it_is() -> None:
    assert ident_in(TAX, "v%201").name == "v%201"
