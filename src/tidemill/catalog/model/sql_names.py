"""Finds and replaces column names in SQL expressions by their tokens, without parsing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType

from tidemill.errors import InvalidInput

LITERALS: Final = frozenset({TokenType.STRING, TokenType.NUMBER})
# Keywords of expressions; a column with such a name must be quoted in backticks.
KEYWORDS: Final = frozenset(
    {
        TokenType.AND,
        TokenType.OR,
        TokenType.NOT,
        TokenType.IN,
        TokenType.IS,
        TokenType.LIKE,
        TokenType.BETWEEN,
        TokenType.NULL,
        TokenType.TRUE,
        TokenType.FALSE,
        TokenType.CASE,
        TokenType.WHEN,
        TokenType.THEN,
        TokenType.ELSE,
        TokenType.END,
        TokenType.ALIAS,
    }
)
BEFORE_NON_NAMES: Final = frozenset({TokenType.DOT, TokenType.DCOLON, TokenType.ALIAS})


class LanceTokenizer(Tokenizer):
    """Splits expressions as Lance does: names in backticks, strings in single or double quotes."""

    IDENTIFIERS = ["`"]  # noqa: RUF012 (the form sqlglot reads)
    QUOTES = ["'", '"']  # noqa: RUF012


def quoted_name(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def with_names_replaced(text: str, replacement: Callable[[str], str | None], field: str) -> str:
    """Replaces every name for which `replacement` returns text. Fields inside a column are left alone."""
    try:
        tokens = LanceTokenizer().tokenize(text)
    except TokenError as error:
        raise InvalidInput(field, f"is not an SQL expression ({error})"[:200]) from error
    _check_balanced(tokens, field)
    pieces: list[str] = []
    position = 0
    for index, token in enumerate(tokens):
        replaced = replacement(token.text) if _is_name(tokens, index) else None
        if replaced is not None:
            pieces += [text[position : token.start], replaced]
            position = token.end + 1
    return "".join([*pieces, text[position:]])


def _is_name(tokens: list[Token], index: int) -> bool:
    """A word is a name unless it calls a function, is a type, or follows a dot."""
    token = tokens[index]
    if token.token_type in LITERALS or (index and tokens[index - 1].token_type in BEFORE_NON_NAMES):
        return False
    if token.token_type is TokenType.IDENTIFIER:
        return True
    is_called = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
    if is_called or token.token_type in KEYWORDS:
        return False
    return token.text[:1].isalpha() or token.text.startswith("_")


def _check_balanced(tokens: list[Token], field: str) -> None:
    """Checks parentheses: an expression that we put in parentheses must not close them."""
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0:
            break
    if depth:
        raise InvalidInput(field, "has unbalanced parentheses")
