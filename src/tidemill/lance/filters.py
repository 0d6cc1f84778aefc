"""Filters that clients send, looked at before Lance parses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import InvalidInput

MAX_FILTER_BYTES: Final = 8192
MAX_NESTING: Final = 50
# Lance recurses on expressions; some hundred operators in a row overflow its stack and kill the process.
MAX_OPERATORS: Final = 500
OPERANDS: Final = frozenset(
    {
        TokenType.COMMA,
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.L_PAREN,
        TokenType.R_PAREN,
    }
)
CONJUNCTIONS: Final = frozenset({TokenType.AND, TokenType.OR})
OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


def check_filter(text: str, field: str) -> None:
    """Raises InvalidInput for filters that could hurt the process or mean more than they show."""
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise InvalidInput(field, f"is longer than {MAX_FILTER_BYTES} bytes")
    try:
        tokens = sqlglot.tokenize(text)
    except SqlglotError as error:
        raise InvalidInput(field, f"is not a SQL expression ({error})") from error
    depth = 0
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON or token.comments:
            raise InvalidInput(field, "has to be one expression, without ';' and without comments")
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        if depth < 0:
            raise InvalidInput(field, "has a ')' that nothing opens")
        if depth > MAX_NESTING:
            raise InvalidInput(field, f"is nested more than {MAX_NESTING} deep")
    if depth:
        raise InvalidInput(field, "has a '(' that nothing closes")
    if not tokens:
        raise InvalidInput(field, "is empty; leave it out to select all rows")
    _check_chains(tokens, field)


def _check_chains(tokens: Sequence[Token], field: str) -> None:
    """What AND or OR join at the top may be many; operators inside one of the parts may not."""
    depth = operators = 0
    for kind in (token.token_type for token in tokens):
        depth += (kind in OPENING) - (kind in CLOSING)
        if kind in CONJUNCTIONS:
            operators = operators if depth else 0
        elif kind not in OPERANDS:
            operators += 1
        if operators > MAX_OPERATORS:
            raise InvalidInput(field, f"has more than {MAX_OPERATORS} operators in a row")
