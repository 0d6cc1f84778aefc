"""The SQL of views: splits a SELECT over one table into parts that Lance evaluates.

lancedb's client defines views by SQL. A plain scan (`SELECT columns FROM table WHERE ... LIMIT n`) becomes a
`SourceQuery`, whose expressions Lance itself evaluates, and can be refreshed row by row. Any other statement
goes to Spark SQL unchanged (`read_sql`); stored queries, which have no Spark, reject it (`read_query`).

The statement is split by its tokens and not parsed, so that Lance gets every expression as it was written.
Everything outside the supported form must therefore be recognized and rejected here: a clause that slipped
through would become part of an expression, and the view would fail later or have the wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType

from tidemill.catalog.model.json_values import checked_expression
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import MaterializedView, SourceQuery, quoted
from tidemill.jobs.views.sql.plan import is_plain_scan

COMMENT: Final = r"--[^\n]*+|(?>/\*.*?\*/)"
STATEMENT: Final = re.compile(rf"(?:\s++|{COMMENT})*+(?:SELECT|WITH)\b", re.IGNORECASE | re.DOTALL)
QUOTED_OR_COMMENT: Final = re.compile(rf"""('[^']*+'|"[^"]*+"|`[^`]*+`)|{COMMENT}""", re.DOTALL)
SUPPORTED_FORM: Final = "SELECT columns FROM [namespace.]table [WHERE condition] [LIMIT rows]"
# The order of clauses.
CLAUSES: Final = (TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.LIMIT)
UNSUPPORTED_CLAUSES: Final = {
    TokenType.JOIN: "JOIN",
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.ORDER_BY: "ORDER BY",
    TokenType.OFFSET: "OFFSET",
    TokenType.UNION: "UNION",
    TokenType.EXCEPT: "EXCEPT",
    TokenType.INTERSECT: "INTERSECT",
    TokenType.WITH: "WITH",
    TokenType.WINDOW: "WINDOW",
    TokenType.QUALIFY: "QUALIFY",
}
UNSUPPORTED_ANYWHERE: Final = {TokenType.OVER: "a window function (OVER)"}
OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
LITERALS: Final = frozenset(
    {TokenType.STRING, TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.CURRENT_DATE}
    | {TokenType.CURRENT_TIME, TokenType.CURRENT_TIMESTAMP, TokenType.CURRENT_USER}
)
WORD: Final = re.compile(r"[^\W\d]\w*")
CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
AGGREGATES: Final = frozenset(
    {"avg", "count", "sum", "min", "max", "median", "stddev", "var", "variance", "array_agg", "string_agg"}
    | {"approx_distinct", "first_value", "last_value", "bool_and", "bool_or", "stddev_pop", "stddev_samp"}
)


class _StatementTokenizer(Tokenizer):
    """Reads names in both kinds of quotes: lancedb uses one for tables and aliases, one for columns."""

    IDENTIFIERS = ['"', "`"]  # noqa: RUF012 (the form sqlglot reads)


@dataclass(frozen=True, slots=True)
class _TokenRun:
    """A run of tokens of a statement."""

    statement: str
    tokens: tuple[Token, ...]

    @property
    def expression(self) -> str:
        """The original text, with quoted names in the quotes that Lance uses."""
        pieces: list[str] = []
        position = self.tokens[0].start
        for token in self.tokens:
            pieces.append(self.statement[position : token.start])
            is_name = token.token_type is TokenType.IDENTIFIER
            pieces.append(quoted(token.text) if is_name else self.statement[token.start : token.end + 1])
            position = token.end + 1
        return "".join(pieces)


def read_query(statement: str, field: str) -> SourceQuery:
    """Reads a statement of the supported form; raises Unsupported for what is beyond it."""
    checked_expression(statement, field)
    clauses = _clauses(statement, _tokens(statement, field), field)
    source = _source(clauses[TokenType.FROM], field)
    where, limit = clauses.get(TokenType.WHERE), clauses.get(TokenType.LIMIT)
    return SourceQuery(
        source=source,
        columns=_columns(clauses[TokenType.SELECT], field),
        filter=None if where is None else where.expression,
        limit=None if limit is None else _limit(limit, field),
    )


def is_sql(text: str) -> bool:
    """Whether a source query is an SQL statement: it starts like one, after blanks and comments."""
    return STATEMENT.match(text) is not None


def read_sql(statement: str, field: str) -> tuple[SourceQuery, str | None]:
    """A plain scan gives a query and no statement, anything else an empty query and the statement."""
    checked_expression(statement, field)
    if is_plain_scan(statement):
        plain = QUOTED_OR_COMMENT.sub(lambda found: found[1] or " ", statement)
        return read_query(plain, field), None
    return SourceQuery(()), statement


def query_text(query: SourceQuery) -> str:
    """The canonical statement of a query."""
    columns = "*"
    if query.columns:
        columns = ", ".join(
            expression if expression == quoted(alias) else f"{expression} AS {quoted(alias)}"
            for alias, expression in query.columns.items()
        )
    text = f"SELECT {columns} FROM {'.'.join(map(quoted, query.source))}"
    if query.filter is not None:
        text += f" WHERE {query.filter}"
    return text if query.limit is None else f"{text} LIMIT {query.limit}"


def view_text(view: MaterializedView, source: Sequence[str], functions: Sequence[str]) -> str:
    """The statement of a view with the current name of its source. Functions are in FROM, as in lancedb."""
    query = view.query
    if not view.sources:
        return view.raw_query
    if view.statement is not None:
        return view.statement
    text = query_text(SourceQuery(tuple(source), query.columns, query.filter, query.limit))
    if not functions:
        return text
    calls = ", ".join(f"{name}({', '.join(map(quoted, view.inputs_read))}) AS {name}" for name in functions)
    from_clause = f"FROM {'.'.join(map(quoted, source))}"
    return text.replace(from_clause, f"{from_clause}, {calls}", 1)


def _tokens(statement: str, field: str) -> tuple[Token, ...]:
    try:
        tokens = tuple(_StatementTokenizer().tokenize(statement))
    except TokenError as error:
        raise InvalidInput(field, f"cannot be read ({error}); it must be {SUPPORTED_FORM}"[:300]) from error
    if any(token.comments for token in tokens):
        raise InvalidInput(field, "contains a comment; remove it")
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens = tokens[:-1]
    return tokens


def _clauses(statement: str, tokens: tuple[Token, ...], field: str) -> dict[TokenType, _TokenRun]:
    if len(tokens) > 1 and tokens[1].token_type is TokenType.DISTINCT:
        raise Unsupported(f"{field}: DISTINCT is not supported yet; a view is {SUPPORTED_FORM}")
    starts = [
        index
        for index, (token, depth) in enumerate(_with_depth(tokens))
        if depth == 0 and token.token_type in CLAUSES and not _is_distinct_from(tokens, index)
    ]
    kinds = [tokens[index].token_type for index in starts]
    for token, depth in _with_depth(tokens):
        unsupported = UNSUPPORTED_ANYWHERE.get(token.token_type) or (
            depth == 0 and UNSUPPORTED_CLAUSES.get(token.token_type)
        )
        if unsupported:
            raise Unsupported(f"{field}: {unsupported} is not supported yet; a view is {SUPPORTED_FORM}")
        if token.token_type is TokenType.SELECT and depth:
            raise Unsupported(f"{field}: a subquery is not supported yet; a view is {SUPPORTED_FORM}")
    if kinds[:2] != [TokenType.SELECT, TokenType.FROM] or starts[0] != 0 or kinds != _in_order(kinds):
        raise InvalidInput(field, f"must be {SUPPORTED_FORM}")
    ends = [*starts[1:], len(tokens)]
    found = {
        tokens[start].token_type: _TokenRun(statement, tokens[start + 1 : end])
        for start, end in zip(starts, ends, strict=True)
    }
    for kind, text in found.items():
        if not text.tokens:
            raise InvalidInput(field, f"has nothing after {kind.name}; it must be {SUPPORTED_FORM}")
    return found


def _is_distinct_from(tokens: Sequence[Token], index: int) -> bool:
    """Whether this FROM belongs to `a IS DISTINCT FROM b`."""
    return index > 0 and tokens[index - 1].token_type is TokenType.DISTINCT


def _in_order(kinds: Sequence[TokenType]) -> list[TokenType]:
    return [kind for kind in CLAUSES if kind in kinds]


def _with_depth(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    depth = 0
    for token in tokens:
        depth -= token.token_type in CLOSING
        yield token, depth
        depth += token.token_type in OPENING


def _source(text: _TokenRun, field: str) -> tuple[str, ...]:
    """The levels of the name of the one table, which must not have an alias."""
    names, separators = text.tokens[::2], text.tokens[1::2]
    for token in text.tokens:
        if token.token_type is TokenType.COMMA:
            raise Unsupported(f"{field}: FROM names more than one table, which is not supported yet")
        if token.token_type is TokenType.L_PAREN:
            raise Unsupported(f"{field}: a function in FROM is not supported yet; a view is {SUPPORTED_FORM}")
    if len(text.tokens) % 2 == 0 or any(token.token_type is not TokenType.DOT for token in separators):
        raise InvalidInput(field, f"FROM must be followed by a table name only; it must be {SUPPORTED_FORM}")
    return tuple(name.text for name in names)


def _columns(text: _TokenRun, field: str) -> dict[str, str] | None:
    items = list(_items(text))
    if len(items) == 1 and [token.token_type for token in items[0].tokens] == [TokenType.STAR]:
        return None
    columns: dict[str, str] = {}
    for item in items:
        name, expression = _column(item, field)
        if name in columns:
            raise InvalidInput(field, f"has two columns named {name!r:.60}; rename one with AS")
        columns[name] = checked_expression(expression, field)
    return columns


def _items(text: _TokenRun) -> Iterator[_TokenRun]:
    item: list[Token] = []
    for token, depth in _with_depth(text.tokens):
        if depth == 0 and token.token_type is TokenType.COMMA:
            yield _TokenRun(text.statement, tuple(item))
            item = []
        else:
            item.append(token)
    yield _TokenRun(text.statement, tuple(item))


def _column(item: _TokenRun, field: str) -> tuple[str, str]:
    """The name and expression of a column. A bare name is both."""
    tokens = item.tokens
    if not tokens:
        raise InvalidInput(field, "has an empty column between two commas")
    if any(token.token_type is TokenType.STAR and len(tokens) in {1, 3} for token in tokens[-1:]):
        raise Unsupported(f"{field}: '*' beside other columns is not supported yet; name the columns")
    _refuse_aggregates(tokens, field)
    if len(tokens) > 2 and tokens[-2].token_type is TokenType.ALIAS:
        return tokens[-1].text, _TokenRun(item.statement, tokens[:-2]).expression
    if len(tokens) == 1 and _is_name(tokens[0]):
        return tokens[0].text, quoted(tokens[0].text)
    raise InvalidInput(field, f"the column {item.expression!r:.80} needs a name; add AS and a name")


def _is_name(token: Token) -> bool:
    """Many type words, such as text and date, are also names, so most words count as names."""
    if token.token_type is TokenType.IDENTIFIER:
        return True
    return token.token_type not in LITERALS and WORD.fullmatch(token.text) is not None


def _refuse_aggregates(tokens: Sequence[Token], field: str) -> None:
    for name, following in pairwise(tokens):
        if following.token_type is TokenType.L_PAREN and name.text.lower() in AGGREGATES:
            raise Unsupported(f"{field}: the aggregate function {name.text}() is not supported yet")


def _limit(text: _TokenRun, field: str) -> int:
    (token, *others) = text.tokens
    if others or token.token_type is not TokenType.NUMBER or not token.text.isdigit():
        raise InvalidInput(field, "LIMIT must be followed by a whole number")
    return int(token.text)
