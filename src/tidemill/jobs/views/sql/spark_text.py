"""Checks the text that Spark gets, word by word: only known words, and only allowed functions.

sqlglot reads a statement, and Spark runs the text that is generated from what sqlglot read. The two parsers
may differ, so this check relies on neither: it needs no grammar. Generated text has every name in backticks
and no comments, so each bare word is a keyword, a type, a unit or a function. Spark calls a function only by
a name before a parenthesis, or by one of a few bare words such as `current_user`, which are not allowed here.

The planner checks the text that it made, and the worker checks it again before Spark gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.functions import refusal_of, words

# As Spark's lexer divides a text. The rest of its tokens (comments, parameters, double quotes, dollar quotes)
# are never generated.
TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    | (?P<forbidden>--|/\*|\|>)
    | (?P<text>[xX]?'(?:[^'\\]|\\.|'')*')
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![A-Za-z0-9_'`]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?!['`]))
    | (?P<sign>[-+*/%=<>!&|^~()\[\],.:])""",
    re.VERBOSE | re.DOTALL,
)
# Those that a parenthesis may follow.
BEFORE_PARENTHESES: Final = words(
    """
    ALL AND ANY AS BETWEEN BY CASE CAST CHAR CUBE DECIMAL DISTINCT DIV ELSE ESCAPE EXCEPT EXISTS
    EXTRACT FILTER FROM GROUP HAVING ILIKE IN INTERSECT INTERVAL JOIN LATERAL LIKE LIMIT MINUS NOT
    OFFSET ON OR OVER RLIKE ROLLUP SELECT SETS SOME THEN TRY_CAST UNION VALUES VARCHAR WHEN WHERE
    """
)
KEYWORDS: Final = BEFORE_PARENTHESES | words(
    """
    ANTI ASC BOTH COLLATE CROSS CURRENT DESC END FALSE FIRST FOLLOWING FOR FULL GROUPING IGNORE
    INNER IS LAST LEADING LEFT NULL NULLS ORDER OUTER PARTITION PLACING PRECEDING RANGE RESPECT
    RIGHT ROW ROWS SEMI TO TRAILING TRUE UNBOUNDED VIEW WINDOW WITH WITHIN
    """
)
TYPES: Final = words(
    """
    ARRAY BIGINT BINARY BOOLEAN BYTE DATE DOUBLE FLOAT INT INTEGER LONG MAP NUMERIC REAL SHORT
    SMALLINT STRING STRUCT TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARIANT VOID
    """
)
UNITS: Final = words(
    """
    DAY DAYOFWEEK DAYOFWEEK_ISO DAYOFYEAR DAYS DOW DOW_ISO DOY HOUR HOURS MICROSECOND MICROSECONDS
    MILLISECOND MILLISECONDS MINUTE MINUTES MONTH MONTHS QUARTER SECOND SECONDS WEEK WEEKS YEAR
    YEAROFWEEK YEARS
    """
)
COLLATIONS: Final = frozenset({"UTF8_BINARY", "UTF8_LCASE", "UNICODE", "UNICODE_CI"})
WORDS: Final = KEYWORDS | TYPES | UNITS | COLLATIONS


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.upper() == word


EDGE: Final = _Token("edge", "")


def check_spark_text(statement: str, field: str) -> None:
    """Raises InvalidInput for anything but a SELECT of known words, names, values and allowed functions."""
    tokens = [EDGE, *_tokens(statement, field), EDGE]
    if not (tokens[1].is_word("SELECT") or tokens[1].is_word("WITH")):
        raise InvalidInput(field, "must be one query")
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        match token.kind:
            case "word":
                _check_word(before, token, after, field)
            case "name" if after.text == "(" and not before.is_word("AS"):
                raise InvalidInput(
                    field, f"calls {token.text:.80} in quotes; write the function without them"
                )
            case "sign" if token.text == ":" and before.kind != "name":
                raise InvalidInput(field, "has a parameter; write the value itself")


def _tokens(statement: str, field: str) -> Iterator[_Token]:
    place = 0
    while place < len(statement):
        found = TOKEN.match(statement, place)
        if found is None or found.lastgroup == "forbidden":
            raise InvalidInput(field, f"has {statement[place : place + 20]!r}, which is not supported")
        if found.lastgroup != "space":
            yield _Token(str(found.lastgroup), found.group())
        place = found.end()


def _check_word(before: _Token, token: _Token, after: _Token, field: str) -> None:
    if before.text == ".":
        raise InvalidInput(field, f"calls {token.text:.80}() by a name with dots; write its last part alone")
    word = token.text.upper()
    is_called = after.text == "(" and word not in BEFORE_PARENTHESES
    refused = refusal_of(token.text.lower()) if is_called else None
    if refused is not None:
        raise InvalidInput(field, refused)
    if not is_called and word not in WORDS:
        raise InvalidInput(field, f"has {token.text!r:.80}, which is not supported in views")
