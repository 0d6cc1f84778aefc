"""Translates full-text queries, in every form that clients send, even in that of Rust's debug output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidemill.errors import InvalidInput
from tidemill.lance.model.queries import (
    TextBoolean,
    TextBoost,
    TextMatch,
    TextMultiMatch,
    TextPhrase,
    TextQuery,
    TextSearch,
)
from tidemill.protocols.http.fields import Fields

KINDS: Final = ("match", "phrase", "boost", "multi_match", "boolean")
# Lance evaluates queries recursively.
MAX_NESTING: Final = 16
MAX_CLAUSES: Final = 256
DEFAULT_NEGATIVE_BOOST: Final = 0.5
OPERATORS: Final = {"and": True, "or": False}


def text_query(fields: Fields | None) -> TextSearch | TextQuery | None:
    """Reads `string_query` or `structured_query` of the specification, or lancedb's query directly."""
    if fields is None:
        return None
    string, structured = fields.nested("string_query"), fields.nested("structured_query")
    if string is not None and structured is not None:
        raise InvalidInput(fields.name_of("string_query"), "cannot be combined with structured_query")
    inner = string or structured or fields
    if isinstance(inner.raw("query"), dict):
        return _structured(inner.nested("query"), 1)
    if structured is not None:
        raise InvalidInput(inner.name_of("query"), f"must be an object with one of {', '.join(KINDS)}")
    return _string(inner)


def _string(fields: Fields) -> TextSearch | TextQuery:
    text, columns = fields.required_text("query"), fields.texts("columns") or ()
    return printed_query(text, columns, fields.name_of("query")) or TextSearch(text, columns)


def _structured(fields: Fields | None, depth: int) -> TextQuery:
    assert fields is not None
    if depth > MAX_NESTING:
        raise InvalidInput("full_text_query", f"is nested more than {MAX_NESTING} levels deep")
    present_kinds = [kind for kind in KINDS if fields.has(kind)]
    if len(present_kinds) != 1:
        raise InvalidInput(fields.name_of("query"), f"must have exactly one of {', '.join(KINDS)}")
    query = fields.nested(present_kinds[0])
    assert query is not None
    match present_kinds[0]:
        case "match":
            return _match(query, fields.raw("match"))
        case "phrase":
            return TextPhrase(query.required_text("terms"), _column(query), query.integer("slop", 0) or 0)
        case "multi_match":
            return _multi_match(query)
        case "boost":
            return _boost(query, depth)
        case _:
            return TextBoolean(
                must=_clauses(query, "must", depth),
                should=_clauses(query, "should", depth),
                must_not=_clauses(query, "must_not", depth),
            )


def _match(fields: Fields, raw: Mapping[str, Any]) -> TextMatch:
    default = TextMatch("")
    boost = fields.number("boost", 0)
    expansions = fields.integer("max_expansions", 0)
    return TextMatch(
        terms=fields.required_text("terms"),
        column=_column(fields),
        boost=default.boost if boost is None else boost,
        # Null means automatic fuzziness, a missing field means none.
        fuzziness=fields.integer("fuzziness", 0) if "fuzziness" in raw else default.fuzziness,
        max_expansions=default.max_expansions if expansions is None else expansions,
        needs_all_terms=_needs_all(fields),
        prefix_length=fields.integer("prefix_length", 0) or 0,
    )


def _multi_match(fields: Fields) -> TextMultiMatch:
    """The specification sends one match per column, lancedb one text with several columns."""
    if fields.has("columns"):
        return _match_in_columns(fields)
    entries = zip(fields.objects("match_queries"), fields.raw("match_queries") or (), strict=True)
    matches = tuple(_match(entry, raw) for entry, raw in entries)
    if not 0 < len(matches) <= MAX_CLAUSES:
        raise InvalidInput(fields.name_of("match_queries"), f"must have 1 to {MAX_CLAUSES} queries")
    return TextMultiMatch(matches)


def _match_in_columns(fields: Fields) -> TextMultiMatch:
    text, columns = fields.required_text("query"), fields.texts("columns") or ()
    boosts = fields.raw("boost") or [1.0] * len(columns)
    if not isinstance(boosts, list) or not all(is_number(boost) and boost >= 0 for boost in boosts):
        raise InvalidInput(fields.name_of("boost"), "must be a list of numbers of at least 0")
    if not 0 < len(columns) <= MAX_CLAUSES or len(boosts) != len(columns):
        raise InvalidInput(
            fields.name_of("columns"), f"must have 1 to {MAX_CLAUSES} names and as many boosts"
        )
    needs_all = _needs_all(fields)
    return TextMultiMatch(
        tuple(
            TextMatch(text, column, boost=float(boost), needs_all_terms=needs_all)
            for column, boost in zip(columns, boosts, strict=True)
        )
    )


def _boost(fields: Fields, depth: int) -> TextBoost:
    positive, negative = fields.nested("positive"), fields.nested("negative")
    if positive is None or negative is None:
        raise InvalidInput(fields.name_of("positive"), "and negative are both required")
    weight = fields.number("negative_boost", 0)
    return TextBoost(
        _structured(positive, depth + 1),
        _structured(negative, depth + 1),
        DEFAULT_NEGATIVE_BOOST if weight is None else weight,
    )


def _clauses(fields: Fields, key: str, depth: int) -> tuple[TextQuery, ...]:
    entries = fields.objects(key)
    if len(entries) > MAX_CLAUSES:
        raise InvalidInput(fields.name_of(key), f"has more than {MAX_CLAUSES} queries")
    return tuple(_structured(entry, depth + 1) for entry in entries)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _column(fields: Fields) -> str | None:
    return fields.text("column") or None


def _needs_all(fields: Fields) -> bool:
    operator = fields.text("operator")
    if operator is None:
        return False
    if operator.lower() not in OPERATORS:
        raise InvalidInput(fields.name_of("operator"), f"must be one of And, Or, not {operator!r:.60}")
    return OPERATORS[operator.lower()]


PRINTED: Final = re.compile(
    r"(?:(?:Match|Phrase|MultiMatch|CombinedFields)\(\w+ \{|Boolean\(must=|Boost(?:ing)?\(positive=).*\)",
    re.DOTALL,
)
TEXT: Final = r'"((?:[^"\\]|\\.)*)"'
COLUMN: Final = rf"column: (?:None|Some\({TEXT}\)), "
OTHER_FIELDS: Final = r"(?:, \w+: [\w()]+)* \}\)"
MATCH: Final = re.compile(
    rf"Match\(MatchQuery \{{ {COLUMN}terms: {TEXT}, boost: ([\d.]+), fuzziness: (?:None|Some\((\d+)\)), "
    rf"max_expansions: (\d+), operator: (And|Or), prefix_length: (\d+){OTHER_FIELDS}"
)
PHRASE: Final = re.compile(rf"Phrase\(PhraseQuery \{{ {COLUMN}terms: {TEXT}, slop: (\d+){OTHER_FIELDS}")
ESCAPED_CHARACTER: Final = re.compile(r"\\u\{([0-9a-f]{1,6})\}")
MAX_DEPTH: Final = 16


def printed_query(text: str, columns: tuple[str, ...], field: str) -> TextQuery | None:
    """The query, or None if the text is plain text. Raises InvalidInput for queries we cannot read."""
    if PRINTED.fullmatch(text) is None:
        return None
    reader = _Reader(text, columns[0] if len(columns) == 1 else None)
    query = reader.query(1)
    if query is None or reader.position != len(text):
        raise InvalidInput(
            field,
            "is a query in debug format other than match, phrase or boolean; send it as structured_query",
        )
    return query


class _Reader:
    """A recursive-descent parser. Its methods return None if the text at `position` does not match."""

    def __init__(self, text: str, column: str | None) -> None:
        self._text = text
        self._column = column
        self.position = 0

    def query(self, depth: int) -> TextQuery | None:
        if self._consume("Boolean(must="):
            return self._boolean(depth) if depth < MAX_DEPTH else None
        if matched := self._match(MATCH):
            column, terms, boost, fuzziness, expansions, operator, prefix = matched.groups()
            return TextMatch(
                terms=_unescaped(terms),
                column=self._column_of(column),
                boost=float(boost),
                fuzziness=None if fuzziness is None else int(fuzziness),
                max_expansions=int(expansions),
                needs_all_terms=operator == "And",
                prefix_length=int(prefix),
            )
        if matched := self._match(PHRASE):
            return TextPhrase(_unescaped(matched[2]), self._column_of(matched[1]), int(matched[3]))
        return None

    def _boolean(self, depth: int) -> TextQuery | None:
        must = self._queries(depth)
        should = self._queries(depth) if self._consume(", should=") else None
        must_not = self._queries(depth) if self._consume(", must_not=") else None
        if must is None or should is None or must_not is None or not self._consume(")"):
            return None
        return TextBoolean(must=must, should=should, must_not=must_not)

    def _queries(self, depth: int) -> tuple[TextQuery, ...] | None:
        if self._consume("[]"):
            return ()
        queries: list[TextQuery] = []
        while self._consume(", " if queries else "["):
            query = self.query(depth + 1)
            if query is None:
                return None
            queries.append(query)
        return tuple(queries) if queries and self._consume("]") else None

    def _column_of(self, column: str | None) -> str | None:
        return self._column if column is None else _unescaped(column)

    def _consume(self, expected: str) -> bool:
        matches = self._text.startswith(expected, self.position)
        self.position += len(expected) if matches else 0
        return matches

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        matched = pattern.match(self._text, self.position)
        if matched is not None:
            self.position = matched.end()
        return matched


def _unescaped(text: str) -> str:
    """Reads Rust's escapes, which are those of JSON except for three."""
    json = ESCAPED_CHARACTER.sub(lambda matched: chr(int(matched[1], 16)), text)
    try:
        value = orjson.loads(f'"{json}"'.replace("\\'", "'").replace("\\0", ""))
    except (orjson.JSONDecodeError, ValueError, OverflowError) as error:
        raise InvalidInput("full_text_query", "is a query in debug format with invalid escapes") from error
    return str(value)
