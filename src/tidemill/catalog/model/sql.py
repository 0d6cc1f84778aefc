"""SQL expressions by their tokens: finds and replaces column names, and bounds how deeply they nest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def paths_in(text: str) -> list[tuple[str, ...]] | None:
    """The columns, or fields inside columns, that an expression names; None if it cannot be split."""
    try:
        tokens = LanceTokenizer().tokenize(text)
    except TokenError:
        return None
    return [_path_at(tokens, index) for index in range(len(tokens)) if _is_name(tokens, index)]


def _path_at(tokens: list[Token], index: int) -> tuple[str, ...]:
    names = [tokens[index].text]
    while index + 2 < len(tokens) and tokens[index + 1].token_type is TokenType.DOT:
        index += 2
        names.append(tokens[index].text)
    return tuple(names)


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


# sqlglot makes up to 28 nested calls for each level of brackets; Python allows 1,000.
MAX_NESTING: Final = 25
# Brackets in quotes do not count.
QUOTED_OR_BRACKET: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|([(\[{])|([)\]}])""")


@contextmanager
def bounded_nesting(text: str, field: str) -> Iterator[None]:
    """Wraps all work of sqlglot on a text; raises InvalidInput if it is nested too deeply.

    Counts the brackets first. Other causes of deep trees, such as long chains of operators, show up only
    while sqlglot works, as a RecursionError, which is translated.
    """
    if _nesting(text) > MAX_NESTING:
        raise InvalidInput(
            field, f"is nested too deeply; at most {MAX_NESTING} levels of brackets are allowed"
        )
    try:
        yield
    except (RecursionError, TokenError) as error:
        # The tokenizer wraps every error in TokenError; syntax errors were found earlier, by the parser.
        raise InvalidInput(
            field, "is nested too deeply; use fewer brackets and shorter chains of operators"
        ) from error


def _nesting(text: str) -> int:
    depth = deepest = 0
    for matched in QUOTED_OR_BRACKET.finditer(text):
        depth += bool(matched[1]) - bool(matched[2])
        deepest = max(deepest, depth)
    return deepest
