"""Translation of QueryTable requests, in the shapes of the specification and of lancedb's remote client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemill.catalog.model.tables import TableQuery
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.fields import MAX_INTEGER, Fields, checked_expression, text_mapping

DISTANCES: Final = frozenset({"l2", "cosine", "dot", "hamming"})


def table_query(fields: Fields) -> TableQuery:
    for key in ("lower_bound", "upper_bound", "order_by"):
        if fields.raw(key) not in (None, []):
            raise Unsupported(f"{key}: is not supported yet; leave it out")
    text, text_columns = _full_text(fields)
    default = TableQuery()
    prefilter = fields.flag("prefilter")
    return TableQuery(
        limit=_limit(fields),
        offset=fields.integer("offset", 0),
        filter=fields.expression("filter") if fields.raw("filter") != "" else None,
        columns=_columns(fields),
        version=fields.integer("version", 1),
        with_row_id=fields.flag("with_row_id") or False,
        vector=_vector(fields),
        vector_column=fields.text("vector_column") or None,
        distance_type=_distance(fields),
        nprobes=fields.integer("minimum_nprobes", 0) or fields.integer("nprobes", 0) or None,
        refine_factor=fields.integer("refine_factor", 0) or None,
        prefilter=default.prefilter if prefilter is None else prefilter,
        full_text=text,
        full_text_columns=text_columns,
    )


def _limit(fields: Fields) -> int | None:
    """lancedb asks for all rows with the largest integer there is."""
    raw = fields.raw("k")
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= MAX_INTEGER:
        return None
    return fields.integer("k", 0)


def _vector(fields: Fields) -> tuple[float, ...] | None:
    raw = fields.raw("vector")
    if isinstance(raw, dict):
        known = [key for key in ("single_vector", "multi_vector") if raw.get(key) is not None]
        if len(known) > 1 or (raw and not known and any(value is not None for value in raw.values())):
            raise InvalidInput("vector", "has to have single_vector or multi_vector")
        raw = raw[known[0]] if known else None
    if raw is None or raw == []:
        return None
    if not isinstance(raw, list):
        raise InvalidInput("vector", "has to be an object with single_vector, or a list of numbers")
    if isinstance(raw[0], list):
        if len(raw) > 1:
            raise Unsupported("vector: more than one query vector is not supported yet; send one query each")
        raw = raw[0]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in raw):
        raise InvalidInput("vector", "has to be made of numbers")
    return tuple(map(float, raw)) or None


def _columns(fields: Fields) -> tuple[str, ...] | Mapping[str, str] | None:
    raw = fields.raw("columns")
    if isinstance(raw, dict) and ("column_names" in raw or "column_aliases" in raw):
        nested = Fields(raw, "columns")
        if nested.has("column_names") and nested.has("column_aliases"):
            raise InvalidInput("columns", "has to have column_names or column_aliases, not both")
        return _names(nested, "column_names") or _aliases(nested.raw("column_aliases"))
    if isinstance(raw, dict):
        return _aliases(raw)
    return _names(fields, "columns")


def _names(fields: Fields, key: str) -> tuple[str, ...] | None:
    names = fields.texts(key)
    if names is not None and not all(names):
        raise InvalidInput(fields.name_of(key), "has an empty name")
    return names or None


def _aliases(raw: Any) -> Mapping[str, str] | None:
    if not raw:
        return None
    return {
        alias: checked_expression(expression, f"columns.{alias}"[:200])
        for alias, expression in text_mapping(raw, "columns").items()
    }


def _full_text(fields: Fields) -> tuple[str | None, tuple[str, ...]]:
    query = fields.nested("full_text_query")
    if query is None:
        return None, ()
    if query.has("structured_query") or isinstance(query.raw("query"), dict):
        raise Unsupported("full_text_query: structured queries are not supported yet; send a string_query")
    text = query.nested("string_query") or query
    return text.required_text("query"), text.texts("columns") or ()


def _distance(fields: Fields) -> str | None:
    distance = fields.text("distance_type")
    if not distance:
        return None
    if distance.lower() not in DISTANCES:
        raise InvalidInput("distance_type", f"{distance!r:.60} is none of {', '.join(sorted(DISTANCES))}")
    return distance.lower()
