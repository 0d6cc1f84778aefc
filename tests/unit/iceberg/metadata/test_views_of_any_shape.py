"""Whatever JSON comes, it makes a view or is refused by name."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.iceberg.metadata.views import NOW, VIEW_UUID, replacing, schema, version, view
from tidemill.errors import TidemillError
from tidemill.iceberg.metadata.views import changed_view, check_view, new_view
from tidemill.iceberg.model.entries import NewView

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["struct", "sql"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in inner for found in paths_in(child, (*path, key)))]


@st.composite
def spoilt(draw: st.DrawFn, whole: Any) -> Any:
    """A good document in which something is missing or of another kind."""
    result = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(paths_in(result)[1:] or [()]))
        if not path:
            return draw(JSON)
        holder = result
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[path[-1]] = draw(JSON)
        else:
            del holder[path[-1]]
    return result


EVERYTHING = [
    {"action": "assign-uuid", "uuid": str(VIEW_UUID)},
    {"action": "upgrade-format-version", "format-version": 1},
    {"action": "set-location", "location": "s3://lake/w"},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    *replacing("SELECT 2", storage_table={"name": "s"}, default_catalog="c"),
]


@settings(max_examples=150, deadline=None)
@given(updates=spoilt(EVERYTHING))
def test_updates_of_any_shape_are_applied_or_refused_and_the_base_stays(updates: Any) -> None:
    base = view("spark", comment="x")
    before, sent = copy.deepcopy(base), copy.deepcopy(updates)
    changed = base
    with suppress(TidemillError):
        changed = changed_view(base, updates if isinstance(updates, list) else [updates], NOW)
    check_view(changed)
    assert base == before
    assert repr(updates) == repr(sent)


@settings(max_examples=150, deadline=None)
@given(document=spoilt(changed_view(view("spark", comment="x"), replacing("SELECT 2"), NOW)))
def test_documents_of_any_shape_are_registered_or_refused(document: Any) -> None:
    try:
        check_view(document)
    except TidemillError:
        return
    # What may be registered can be worked with.
    with suppress(TidemillError):
        check_view(changed_view(document, replacing("SELECT 3", "spark", "trino", "x"), NOW))


@settings(max_examples=150, deadline=None)
@given(given_version=spoilt(version()), given_schema=spoilt(schema("a")))
def test_new_views_of_any_shape_are_made_or_refused(given_version: Any, given_schema: Any) -> None:
    made = None
    with suppress(TidemillError):
        made = new_view(NewView(given_schema, given_version), "s3://lake/v", VIEW_UUID, NOW)
    if made is not None:
        check_view(made)
