"""Translates QueryTable requests, in the forms of the specification and of lancedb's remote client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemill.catalog.model.json_values import MAX_INTEGER, checked_expression
from tidemill.errors import InvalidInput
from tidemill.lance.model.queries import RowOrder, TableQuery, VectorSearch
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.http.identifiers import levels_of
from tidemill.protocols.lance.mapping import branch_of
from tidemill.protocols.lance.text_mapping import is_number, text_query

DISTANCES: Final = frozenset({"l2", "cosine", "dot", "hamming"})
APPROXIMATIONS: Final = ("fast", "normal", "accurate")
MAX_VECTORS: Final = 1024


def table_query(fields: Fields, branch: str) -> TableQuery:
    default = TableQuery()
    prefilter = fields.flag("prefilter")
    return TableQuery(
        limit=_limit(fields),
        offset=fields.integer("offset", 0),
        filter=optional_expression(fields, "filter"),
        columns=_columns(fields),
        version=fields.integer("version", 1),
        branch=branch,
        with_row_id=fields.flag("with_row_id") or False,
        vector=_vector_search(fields),
        full_text=text_query(fields.nested("full_text_query")),
        prefilter=default.prefilter if prefilter is None else prefilter,
        only_indexed=fields.flag("fast_search") or False,
        order=_order(fields),
    )


def explained_query(call: Call, fields: Fields) -> tuple[Fields, str]:
    """The query to explain and its branch, which may be beside the query or in it."""
    query = fields.nested("query")
    if query is None:
        raise InvalidInput("query", "is missing; it must be the query to explain")
    body_id = query.texts("id")
    if body_id is not None and body_id != levels_of(call):
        raise InvalidInput("query.id", f"{list(body_id)} differs from {list(levels_of(call))} in the path")
    branches = {name for name in (fields.text("branch"), query.text("branch")) if name}
    if len(branches) > 1:
        raise InvalidInput("query.branch", "differs from the branch of the request")
    return query, branch_of(call, query if query.has("branch") else fields)


def optional_expression(fields: Fields, key: str) -> str | None:
    """Some clients send an empty string instead of no condition."""
    return fields.expression(key) if fields.raw(key) != "" else None


def _limit(fields: Fields) -> int | None:
    """lancedb sends the largest integer to request all rows."""
    raw = fields.raw("k")
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= MAX_INTEGER:
        return None
    return fields.integer("k", 0)


def _vector_search(fields: Fields) -> VectorSearch | None:
    vectors = _vectors(fields)
    # Checked even without a vector, because clients send these with every query.
    minimum, maximum = _probes(fields)
    lower, upper = _bound(fields, "lower_bound"), _bound(fields, "upper_bound")
    search = VectorSearch(
        vectors=vectors,
        column=fields.text("vector_column") or None,
        distance_type=_distance(fields),
        minimum_probes=minimum,
        maximum_probes=maximum,
        refine_factor=fields.integer("refine_factor", 0) or None,
        candidates=fields.integer("ef", 0) or None,
        approximation=_approximation(fields),
        lower_bound=lower,
        upper_bound=upper,
        uses_index=not fields.flag("bypass_vector_index"),
    )
    if vectors:
        return search
    for key, bound in (("lower_bound", lower), ("upper_bound", upper)):
        if bound is not None:
            raise InvalidInput(key, "limits distances and needs a vector")
    return None


def _probes(fields: Fields) -> tuple[int | None, int | None]:
    """`nprobes` sets both bounds, and is used only if neither is given. Zero counts as not given."""
    minimum, maximum = fields.integer("minimum_nprobes", 0), fields.integer("maximum_nprobes", 0)
    probes = fields.integer("nprobes", 0) or None
    if minimum is None and maximum is None:
        return probes, probes
    if minimum and maximum and minimum > maximum:
        raise InvalidInput("minimum_nprobes", f"is {minimum}, which is more than maximum_nprobes, {maximum}")
    return minimum or None, maximum or None


def _bound(fields: Fields, key: str) -> float | None:
    raw = fields.raw(key)
    if raw is not None and not is_number(raw):
        raise InvalidInput(key, f"must be a number, not {raw!r:.60}")
    return None if raw is None else float(raw)


def _approximation(fields: Fields) -> str | None:
    mode = fields.text("approx_mode")
    if mode and mode.lower() not in APPROXIMATIONS:
        raise InvalidInput("approx_mode", f"must be one of {', '.join(APPROXIMATIONS)}, not {mode!r:.60}")
    return mode.lower() if mode else None


def _vectors(fields: Fields) -> tuple[tuple[float, ...], ...]:
    raw = fields.raw("vector")
    if isinstance(raw, dict):
        present_keys = [key for key in ("single_vector", "multi_vector") if raw.get(key) is not None]
        if len(present_keys) > 1 or (
            raw and not present_keys and any(value is not None for value in raw.values())
        ):
            raise InvalidInput("vector", "must have single_vector or multi_vector")
        raw = raw[present_keys[0]] if present_keys else None
    if raw is None or raw == []:
        return ()
    if not isinstance(raw, list):
        raise InvalidInput("vector", "must be an object with single_vector, or a list of numbers")
    vectors = raw if isinstance(raw[0], list) else [raw]
    if len(vectors) > MAX_VECTORS:
        raise InvalidInput("vector", f"has more than {MAX_VECTORS} query vectors")
    return tuple(filter(None, (_vector(vector) for vector in vectors)))


def _vector(raw: Any) -> tuple[float, ...]:
    if not isinstance(raw, list) or not all(is_number(value) for value in raw):
        raise InvalidInput("vector", "must consist of numbers")
    return tuple(map(float, raw))


def _columns(fields: Fields) -> tuple[str, ...] | Mapping[str, str] | None:
    raw = fields.raw("columns")
    if isinstance(raw, dict) and ("column_names" in raw or "column_aliases" in raw):
        nested = Fields(raw, "columns")
        if nested.has("column_names") and nested.has("column_aliases"):
            raise InvalidInput("columns", "must have column_names or column_aliases, not both")
        return _names(nested, "column_names") or _aliases(nested.raw("column_aliases"))
    if isinstance(raw, dict):
        return _aliases(raw)
    return _names(fields, "columns")


def _names(fields: Fields, key: str) -> tuple[str, ...] | None:
    names = fields.texts(key)
    if names is not None and not all(names):
        raise InvalidInput(fields.name_of(key), "contains an empty name")
    return names or None


def _aliases(raw: Any) -> Mapping[str, str] | None:
    if not raw:
        return None
    return {
        alias: checked_expression(expression, f"columns.{alias}"[:200])
        for alias, expression in text_mapping(raw, "columns").items()
    }


def _order(fields: Fields) -> tuple[RowOrder, ...]:
    """The order, which only lancedb's client sends."""
    return tuple(
        RowOrder(
            column=entry.text("column") or entry.required_text("column_name"),
            is_ascending=entry.flag("ascending") is not False,
            has_nulls_first=entry.flag("nulls_first") or False,
        )
        for entry in fields.objects("order_by")
    )


def _distance(fields: Fields) -> str | None:
    distance = fields.text("distance_type")
    if not distance:
        return None
    if distance.lower() not in DISTANCES:
        raise InvalidInput(
            "distance_type", f"must be one of {', '.join(sorted(DISTANCES))}, not {distance!r:.60}"
        )
    return distance.lower()
