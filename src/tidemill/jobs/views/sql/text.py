"""The text of a view's statement: one query that always has the same answer, and the tables it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, TypeAlias

from sqlglot import exp, parse
from sqlglot.dialects.dialect import NormalizationStrategy
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from tidemill.catalog.model.sql import LanceTokenizer, bounded_nesting
from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.functions import refusal_of

Levels: TypeAlias = tuple[str, ...]

LONGEST_MESSAGE: Final = 300
CLASS: Final = re.compile(r"<class '[\w.]*\.(\w+)'>")
IN_ORDER: Final = "sort what it collects, as in sort_array(collect_list(x))"
NO_CLOCK: Final = "compare with a column or a fixed time"
NO_CHANCE: Final = "take a hash of columns, as in xxhash64(id)"
NO_PLACE: Final = "use a column of the table"
NO_PERSON: Final = "write the name itself"
NO_ORDER: Final = "use min or max"
BY_STRUCT: Final = "take a field of max(struct(y, x)) or min(struct(y, x))"
# What has another answer every time, or by chance, and what to write instead; None: nothing does the same.
REFUSED: Final[dict[str, str | None]] = {
    **dict.fromkeys(("rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle"), NO_CHANCE),
    **dict.fromkeys(("now", "current_timestamp", "current_date", "curdate", "current_time"), NO_CLOCK),
    **dict.fromkeys(("localtimestamp", "localtime", "getdate"), NO_CLOCK),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "input_file_name"), NO_PLACE),
    **dict.fromkeys(("input_file_block_start", "input_file_block_length"), NO_PLACE),
    **dict.fromkeys(("current_user", "session_user", "user"), NO_PERSON),
    **dict.fromkeys(("current_database", "current_schema", "current_catalog", "version"), NO_PERSON),
    **dict.fromkeys(("current_timezone", "nextval"), None),
    **dict.fromkeys(("reflect", "java_method", "try_reflect"), None),
}
# What depends on the order in which rows happen to come.
ORDERED: Final[dict[str, str]] = {
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value", "nth_value"), NO_ORDER),
    **dict.fromkeys(("collect_list", "collect_set", "array_agg"), IN_ORDER),
    **dict.fromkeys(("array_unique_agg",), IN_ORDER),
    **dict.fromkeys(("group_concat", "listagg", "string_agg"), f"{IN_ORDER}, and join that with array_join"),
    **dict.fromkeys(("mode",), NO_ORDER),
    **dict.fromkeys(("arg_max", "max_by", "arg_min", "min_by"), BY_STRUCT),
}
SPOKEN: Final = {"array_unique_agg": "collect_set", "arg_max": "max_by", "arg_min": "min_by"}
UNSERVED: Final[dict[type[exp.Expr], str]] = {
    exp.TableSample: "TABLESAMPLE takes rows by chance; take them by a condition in WHERE",
    exp.QueryTransform: "TRANSFORM … USING runs a script, which is not allowed",
    exp.Unnest: "UNNEST is not supported; write explode(column) AS name in SELECT",
    exp.Into: "INTO is not for views",
    exp.Lock: "FOR UPDATE is not for views",
    exp.Placeholder: "has a parameter; write the value itself",
    exp.Parameter: "has a parameter; write the value itself",
    exp.SessionParameter: "has a parameter; write the value itself",
    exp.Version: "names a version of a table; a view follows its sources",
    exp.Pivot: "PIVOT is not supported; write it with GROUP BY and FILTER",
    exp.Command: "must be a query: SELECT, WITH … SELECT, or several with UNION",
    exp.Kwarg: "names an argument of a function; give arguments by their place",
}

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


class ViewSql(Spark):
    """Spark's SQL, with names in either quotes and in the case they are written in."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ['"', "`"]


DIALECT: Final = ViewSql()


def read_statement(statement: str, field: str) -> exp.Query:
    """The query as a tree; raises InvalidInput unless it is one, and always has the same answer."""
    with bounded_nesting(statement, field):
        return _read(statement, field)


def _read(statement: str, field: str) -> exp.Query:
    try:
        found = [tree for tree in parse(statement, dialect=DIALECT) if tree is not None]
    except (ParseError, TokenError) as error:
        raise InvalidInput(field, f"cannot be read: {_first_line(error)}"[:LONGEST_MESSAGE]) from error
    if len(found) != 1 or not isinstance(found[0], exp.Select | exp.SetOperation | exp.Subquery):
        raise InvalidInput(field, "must be one query: SELECT, WITH … SELECT, or several with UNION")
    tree = found[0].unnest()
    if not isinstance(tree, exp.Query):
        raise InvalidInput(field, "must be one query")
    _drop_hints(tree)
    for node in tree.walk():
        _check_node(node, field)
    return tree


def _first_line(error: Exception) -> str:
    """sqlglot names classes of its own, and marks the place with escape codes on further lines."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CLASS.sub(lambda found: found.group(1).upper(), first)


def _drop_hints(tree: exp.Query) -> None:
    """What only says how to run a query, or in which order to hand over its parts."""
    for select in list(tree.find_all(exp.Select)):
        for part in ("hint", "sort", "distribute", "cluster"):
            select.set(part, None)


def _check_node(node: exp.Expr, field: str) -> None:
    if type(node) in UNSERVED:
        raise InvalidInput(field, UNSERVED[type(node)])
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        called = ".".join(part.name for part in node.parts)
        raise InvalidInput(field, f"calls {called:.80}() by a name with dots; write its last part alone")
    if isinstance(node, exp.Func):
        _check_function(node, field)
    if isinstance(node, exp.Query):
        _check_query(node, field)
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier | exp.Dot):
        raise InvalidInput(field, f"FROM has {node.sql(DIALECT)!r:.80}; it has to name tables")


def _check_function(call: exp.Func, field: str) -> None:
    name = function_name(call)
    if name in REFUSED or (isinstance(call, exp.StrToUnix) and call.this is None) or _asks_the_clock(call):
        advice = REFUSED.get(name, NO_CLOCK)
        other = f"; {advice}" if advice else ""
        raise InvalidInput(field, f"{name}() does not always have the same answer, which a view needs{other}")
    if name in ORDERED and not _is_sorted(call):
        raise InvalidInput(
            field, f"{SPOKEN.get(name, name)}() depends on the order of the rows; {ORDERED[name]}"
        )
    if isinstance(call, exp.Anonymous | exp.AnonymousAggFunc):
        refused = refusal_of(name)
        if refused is not None:
            raise InvalidInput(field, refused)
        call.set("this", name)


def _asks_the_clock(call: exp.Func) -> bool:
    return isinstance(call, exp.StrToUnix) and isinstance(call.this, exp.CurrentTimestamp)


def function_name(call: exp.Func) -> str:
    if isinstance(call, exp.Anonymous | exp.AnonymousAggFunc):
        return str(call.name).lower()
    if isinstance(call, exp.StrToUnix):
        return "unix_timestamp"
    return call.sql_name().lower()


def _is_sorted(call: exp.Func) -> bool:
    """Whether the order is put right at once, does not matter, or is given by a window."""
    parent = call.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    if isinstance(parent, exp.Window):
        return parent.args.get("order") is not None
    is_collecting = function_name(call) in {"array_agg", "array_unique_agg"}
    is_same = isinstance(parent, exp.ArraySort) and not _has_comparator(parent)
    return is_collecting and (is_same or isinstance(parent, exp.ArraySize))


def _has_comparator(call: exp.Expr) -> bool:
    return isinstance(call.args.get("expression"), exp.Lambda)


def _check_query(query: exp.Query, field: str) -> None:
    if query.args.get("order") is None and (query.args.get("limit") or query.args.get("offset")):
        raise InvalidInput(field, "LIMIT without ORDER BY: which rows it takes would be chance; add ORDER BY")
    clauses = query.args.get("with_")
    if clauses is not None and clauses.recursive:
        raise InvalidInput(field, "WITH RECURSIVE is not supported")
    for join in query.args.get("joins") or ():
        if join.method:
            raise InvalidInput(field, f"{join.method} JOIN: say by which columns, with USING or ON")


def named_tables(tree: exp.Query) -> Iterator[exp.Table]:
    """The places where a table is named, in the order of the text; names of WITH are none."""
    found = [table for table in tree.find_all(exp.Table) if not _is_clause(table)]
    yield from sorted(found, key=lambda table: int(table.parts[0].meta.get("start", 0)))


def table_levels(table: exp.Table) -> Levels:
    return tuple(part.name for part in table.parts)


def _is_clause(table: exp.Table) -> bool:
    """Whether a WITH around the table has a query of that name; a query does not see itself or later ones."""
    if len(table.parts) != 1:
        return False
    inside: exp.Expr = table
    while inside.parent is not None:
        around = inside.parent
        if isinstance(around, exp.With):
            earlier = around.expressions[: around.expressions.index(inside)]
            if table.name in {clause.alias for clause in earlier}:
                return True
        elif "with_" in around.args and inside is not around.args["with_"]:
            clauses = around.args["with_"]
            if clauses is not None and table.name in {clause.alias for clause in clauses.expressions}:
                return True
        inside = around
    return False


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
