"""Translates changes to rows and their results, in both dialects."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from tidemill.catalog.model.json_values import checked_expression
from tidemill.errors import InvalidInput
from tidemill.lance.model.edits import EditResult, RowMerge, RowUpdate
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, query_flag
from tidemill.protocols.lance.mapping import properties_of
from tidemill.protocols.lance.requests import is_lancedb

TIMEOUT_HEADER: Final = "x-request-timeout-ms"
MAX_KEYS: Final = 32
TIMEOUT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


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
