"""Checks filters from clients before Lance parses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tidemill.errors import InvalidInput

MAX_FILTER_BYTES: Final = 8192
MAX_NESTING: Final = 50
# Lance recurses on expressions: 349 times `IS TRUE` overflows its stack and kills the process, as do 386
# prefixes or 571 casts. AND, OR and lists do not count, because their operands are siblings.
MAX_OPERATORS: Final = 150
# Our own tokenizer rather than a SQL library's: it must split the text exactly as Lance's parser does.
TOKENS: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--|/\*)
    | (?P<prefixed>(?:[A-Za-wyzA-WYZ]|[nN][qQ]|[uU]&)'|"{3}|'{3}(?=[^']*$))
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\w*)
    | (?P<word>[^\W\d]\w*)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<comma>,)
    | (?P<operator>::|<=|>=|<>|!=|==|\|\||[=<>+\-*/%&|^~!.])
    """,
    re.VERBOSE,
)
PAIRS: Final = {")": "(", "]": "["}
CONJUNCTIONS: Final = frozenset({"AND", "OR"})
# What may follow a value outside parentheses; Lance silently drops anything else.
FOLLOWERS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        AND OR XOR NOT IS NULL TRUE FALSE UNKNOWN ISNULL NOTNULL DISTINCT
        FROM IN LIKE ILIKE RLIKE REGEXP SIMILAR TO BETWEEN ESCAPE COLLATE DIV
        AT TIME ZONE WITH WITHOUT LOCAL PRECISION VARYING UNSIGNED CASE WHEN THEN
        ELSE END YEAR MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND
        YEARS MONTHS WEEKS DAYS HOURS MINUTES SECONDS MILLISECONDS MICROSECONDS NANOSECONDS
        """,
    )
)
BEFORE_A_VALUE: Final = FOLLOWERS - frozenset(
    {"NULL", "TRUE", "FALSE", "UNKNOWN", "ISNULL", "NOTNULL", "END"}
)


class Kind(Enum):
    """The role of a token in an expression."""

    VALUE = auto()
    NAME = auto()
    KEYWORD = auto()
    OPEN = auto()
    CLOSE = auto()
    COMMA = auto()
    OPERATOR = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str


@dataclass(slots=True)
class _Level:
    """One pair of parentheses, with the height of the expressions between its separators."""

    bracket: str
    operators: int = 0
    inner: int = 0
    highest: int = 0
    betweens: int = 0

    @property
    def height(self) -> int:
        return max(self.highest, self.operators + self.inner)

    def separate(self) -> None:
        self.highest = self.height
        self.operators = self.inner = self.betweens = 0


def check_filter(text: str, field: str) -> None:
    """Raises InvalidInput for filters that could crash the process or that Lance would read differently."""
    problem = _filter_problem(text)
    if problem:
        raise InvalidInput(field, problem)


def _filter_problem(text: str) -> str | None:
    try:
        if len(text.encode()) > MAX_FILTER_BYTES:
            return f"is longer than {MAX_FILTER_BYTES} bytes"
        tokens = list(_tokens(text))
    except UnicodeEncodeError:
        return "is not a SQL expression (it has half of a character)"
    except ValueError as error:
        return str(error)
    if not tokens:
        return "is empty; leave it out to select all rows"
    return _shape_problem(tokens)


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = TOKENS.match(text, position)
        group = None if match is None else match.lastgroup
        if match is None or group in ("comment", "prefixed"):
            raise ValueError(_unreadable(text, position, group))
        position = match.end()
        if group != "space":
            yield Token(_kind(str(group), match.group()), match.group())


def _unreadable(text: str, position: int, group: str | None) -> str:
    if group == "comment" or text[position] == ";":
        return "must be one expression, without ';' and without comments"
    if text[position] in "'\"`":
        return f"is not a SQL expression (a quote is never closed: {text[position:]!r:.40})"
    return f"is not a SQL expression (cannot read {text[position:]!r:.40})"


def _kind(group: str, text: str) -> Kind:
    match group:
        case "text" | "number":
            return Kind.VALUE
        case "quoted":
            return Kind.NAME
        case "word":
            return Kind.KEYWORD if text.upper() in FOLLOWERS else Kind.NAME
        case "open":
            return Kind.OPEN
        case "close":
            return Kind.CLOSE
        case "comma":
            return Kind.COMMA
        case _:
            return Kind.OPERATOR


def _shape_problem(tokens: list[Token]) -> str | None:
    levels = [_Level("")]
    before: Token | None = None
    for token in tokens:
        problem = _follower_problem(before, token, len(levels) - 1) or _step(levels, before, token)
        if problem:
            return problem
        before = token
    return f"has a '{levels[-1].bracket}' that nothing closes" if len(levels) > 1 else None


def _step(levels: list[_Level], before: Token | None, token: Token) -> str | None:
    """Processes one token; returns a problem if there is one."""
    level = levels[-1]
    if token.kind is Kind.OPEN:
        levels.append(_Level(token.text))
        return f"is nested more than {MAX_NESTING} deep" if len(levels) > MAX_NESTING + 1 else None
    if token.kind is Kind.CLOSE:
        if level.bracket != PAIRS[token.text]:
            return f"has a '{token.text}' that nothing opens"
        levels.pop()
        levels[-1].inner = max(levels[-1].inner, level.height + 1)
    else:
        _grow(level, before, token)
    if levels[-1].height > MAX_OPERATORS:
        return f"has more than {MAX_OPERATORS} operators in a row"
    return None


def _grow(level: _Level, before: Token | None, token: Token) -> None:
    word = token.text.upper()
    if token.kind is Kind.COMMA or (word in CONJUNCTIONS and not _belongs_to_between(level, word)):
        level.separate()
    elif token.kind is Kind.OPERATOR or (token.kind in (Kind.KEYWORD, Kind.NAME) and _is_value(before)):
        level.operators += 1
        level.betweens += word == "BETWEEN"


def _belongs_to_between(level: _Level, word: str) -> bool:
    if word != "AND" or not level.betweens:
        return False
    level.betweens -= 1
    return True


def _is_value(token: Token | None) -> bool:
    return token is not None and token.kind in (Kind.VALUE, Kind.NAME, Kind.KEYWORD, Kind.CLOSE)


def _follower_problem(before: Token | None, token: Token, depth: int) -> str | None:
    """Rejects adjacent values as in `id = 1 2`, of which Lance would only read the first."""
    if before is None or not _ends_a_value(before):
        return None
    stray = token.kind is Kind.VALUE and before.kind is not Kind.NAME
    stray = stray or (token.kind is Kind.NAME and depth == 0)
    stray = stray or (token.text == "(" and before.kind in (Kind.VALUE, Kind.CLOSE))
    if not stray:
        return None
    return f"is not one SQL expression (nothing joins {before.text!r:.40} and {token.text!r:.40})"


def _ends_a_value(token: Token) -> bool:
    if token.kind is Kind.KEYWORD:
        return token.text.upper() not in BEFORE_A_VALUE
    return token.kind in (Kind.VALUE, Kind.NAME, Kind.CLOSE)
