"""Translates queries and changes of rows, and their results, as the specification and lancedb have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from io import SEEK_END
from typing import IO, Any, Final

from starlette.responses import Response, StreamingResponse

from tidemill.catalog.model.json_values import MAX_INTEGER, checked_expression
from tidemill.errors import InvalidInput
from tidemill.lance.model.edits import EditResult, RowMerge, RowUpdate
from tidemill.lance.model.queries import QueryResult, RowOrder, TableQuery, VectorSearch
from tidemill.protocols.http.call import ARROW_FILE, MIB, Call
from tidemill.protocols.http.fields import Fields, query_flag, text_mapping
from tidemill.protocols.lance.mapping import branch_of, properties_of
from tidemill.protocols.lance.requests import check_id, is_lancedb
from tidemill.protocols.lance.text_mapping import is_number, text_query

DISTANCES: Final = frozenset({"l2", "cosine", "dot", "hamming"})
APPROXIMATIONS: Final = ("fast", "normal", "accurate")
MAX_VECTORS: Final = 1024
TIMEOUT_HEADER: Final = "x-request-timeout-ms"
MAX_KEYS: Final = 32
TIMEOUT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
CHUNK_BYTES: Final = MIB


def table_query(fields: Fields, branch: str) -> TableQuery:
    default = TableQuery()
    prefilter = fields.flag("prefilter")
    return TableQuery(
        limit=_limit(fields),
        offset=fields.integer("offset", 0),
        filter=optional_expression(fields, "filter"),
        columns=_columns(fields),
        version=fields.integer("version", 0),
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
    check_id(call, query)
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
        # Generated clients send the other one, or both, as empty lists.
        given_keys = [key for key, value in raw.items() if value not in (None, [])]
        present_keys = [key for key in given_keys if key in ("single_vector", "multi_vector")]
        if len(present_keys) > 1 or (given_keys and not present_keys):
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
        # The generated Java client sends both, and the one that is not set is empty.
        if nested.raw("column_names") and nested.raw("column_aliases"):
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


def row_merge(call: Call) -> RowMerge:
    on = tuple(call.query.getlist("on"))
    if not on or not all(on):
        raise InvalidInput("on", "is missing; it must name the column to match rows by")
    if len(on) > MAX_KEYS or len(set(on)) < len(on):
        raise InvalidInput("on", f"must name at most {MAX_KEYS} columns, each once")
    updates, condition = _choice(call, "when_matched_update_all", "when_matched_update_all_filt")
    deletes, limit = _choice(
        call, "when_not_matched_by_source_delete", "when_not_matched_by_source_delete_filt"
    )
    inserts = query_flag(call.query, "when_not_matched_insert_all") or False
    if not (updates or deletes or inserts):
        raise InvalidInput(
            "when_matched_update_all",
            "or when_not_matched_insert_all or when_not_matched_by_source_delete must be true;"
            " otherwise the request does nothing",
        )
    uses_index = query_flag(call.query, "use_index")
    return RowMerge(
        on=on,
        updates_matched=updates,
        update_condition=condition,
        inserts_new=inserts,
        deletes_missing=deletes,
        delete_condition=limit,
        timeout=_timeout(call),
        # The defaults of the two dialects differ.
        uses_index=is_lancedb(call.headers) if uses_index is None else uses_index,
    )


def _choice(call: Call, key: str, condition_key: str) -> tuple[bool, str | None]:
    """Reads a flag and its condition. A condition without the flag implies the flag."""
    chosen, condition = query_flag(call.query, key), call.query.get(condition_key)
    if not condition:
        return chosen or False, None
    if chosen is False:
        raise InvalidInput(condition_key, f"is given, but {key} is false")
    if "\x00" in condition:
        raise InvalidInput(condition_key, "contains a NUL character")
    return True, checked_expression(condition, condition_key)


def _timeout(call: Call) -> timedelta | None:
    """Reads a duration such as `30s`, `5m` or `1m30s`. lancedb sends a header in milliseconds instead."""
    header = call.headers.get(TIMEOUT_HEADER)
    text = call.query.get("timeout") or (f"{header}ms" if header else None)
    if text is None:
        return None
    parts = TIMEOUT.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise InvalidInput("timeout", f"{text!r:.60} is not a duration like 30s, 5m or 1m30s")
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= timedelta(days=1).total_seconds():
        raise InvalidInput("timeout", f"{text!r:.60} must be greater than 0 and at most one day")
    return timedelta(seconds=seconds)


def row_update(fields: Fields) -> RowUpdate:
    values = _values(fields.raw("updates"))
    return RowUpdate(values, fields.expression("predicate"), properties_of(fields))


def _values(raw: Any) -> dict[str, str]:
    if isinstance(raw, dict):
        raw = [list(pair) for pair in raw.items()]
    if not isinstance(raw, list) or not raw:
        raise InvalidInput("updates", "is missing; it must be a list of (field path, expression) pairs")
    values: dict[str, str] = {}
    for number, pair in enumerate(raw):
        field = f"updates[{number}]"
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InvalidInput(field, "must be a pair of strings: a field path and an expression")
        path, expression = pair
        if not path or "\x00" in path + expression:
            raise InvalidInput(field, "contains an empty field path or a NUL character")
        if path in values:
            raise InvalidInput(field, f"'{path:.60}' is updated twice")
        values[path] = checked_expression(expression, field)
    return values


def delete_predicate(fields: Fields) -> str:
    predicate = fields.expression("predicate")
    if predicate is None:
        raise InvalidInput("predicate", "is missing; it must say which rows to delete")
    return predicate


def merge_json(call: Call, result: EditResult) -> dict[str, Any]:
    body = {
        "num_updated_rows": result.updated,
        "num_inserted_rows": result.inserted,
        "num_deleted_rows": result.deleted,
        "version": result.version,
    }
    return body | ({"num_rows": result.updated + result.inserted} if is_lancedb(call.headers) else {})


def update_json(call: Call, result: EditResult) -> dict[str, Any]:
    body = {"updated_rows": result.updated, "version": result.version, "properties": dict(result.properties)}
    return body | ({"rows_updated": result.updated} if is_lancedb(call.headers) else {})


def delete_json(call: Call, result: EditResult) -> dict[str, Any]:
    counted = {"num_deleted_rows": result.deleted} if is_lancedb(call.headers) else {}
    return {"version": result.version} | counted


def arrow_file_response(result: QueryResult) -> Response:
    content = result.content
    if isinstance(content, bytes | memoryview):
        return Response(content, media_type=ARROW_FILE)
    size = content.seek(0, SEEK_END)
    content.seek(0)
    return StreamingResponse(_chunks(content), media_type=ARROW_FILE, headers={"content-length": str(size)})


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
