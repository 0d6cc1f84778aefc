"""Parses full-text queries in Rust's debug format, which lancedb sends in place of the text."""

from __future__ import annotations

import re
from typing import Final

import orjson

from tidemill.catalog.model.queries import TextBoolean, TextMatch, TextPhrase, TextQuery
from tidemill.errors import InvalidInput

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
