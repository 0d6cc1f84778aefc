"""Expressions that have another value each time: no view of them is ever up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from tidemill.catalog.model.sql import LanceTokenizer
from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.text import REFUSED

# Those of Spark, and what Lance has beside them.
NON_DETERMINISTIC: Final = frozenset({*REFUSED, "gen_random_uuid", "today", "sysdate"})
# These need no parentheses to be called.
BARE: Final = frozenset(
    {
        TokenType.CURRENT_DATE,
        TokenType.CURRENT_DATETIME,
        TokenType.CURRENT_TIME,
        TokenType.CURRENT_TIMESTAMP,
        TokenType.CURRENT_USER,
        TokenType.LOCALTIME,
        TokenType.LOCALTIMESTAMP,
        TokenType.SESSION_USER,
    }
)
# Without an argument it is the time of now.
CLOCK: Final = "unix_timestamp"


def check_deterministic(expression: str, field: str) -> None:
    """Raises InvalidInput with the function that has another value each time."""
    found = _non_deterministic(expression)
    if found is not None:
        raise InvalidInput(field, f"{found} does not always have the same answer, which a view needs")


def _non_deterministic(expression: str) -> str | None:
    try:
        tokens = LanceTokenizer().tokenize(expression)
    except TokenError:
        # Whoever reads it says what is wrong with it.
        return None
    for index, token in enumerate(tokens):
        name = token.text.lower()
        if token.token_type in BARE and not _is_field(tokens, index):
            return name
        if _is_called(tokens, index):
            if name in NON_DETERMINISTIC:
                return f"{name}()"
            if name == CLOCK and _type_at(tokens, index + 2) is TokenType.R_PAREN:
                return f"{name}()"
    return None


def _is_called(tokens: Sequence[Token], index: int) -> bool:
    is_name = tokens[index].token_type not in {TokenType.STRING, TokenType.IDENTIFIER}
    return is_name and _type_at(tokens, index + 1) is TokenType.L_PAREN


def _is_field(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].token_type is TokenType.DOT


def _type_at(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if index < len(tokens) else None
