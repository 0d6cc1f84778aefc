"""Views that Spark SQL evaluates: what a statement reads and yields, and by which keys it is refreshed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokens import Token, TokenType

from tidemill.catalog.model.sql import bounded_nesting
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.plans import SqlPlan, SqlSource
from tidemill.jobs.model.views import INTERNAL_COLUMNS, KEY
from tidemill.jobs.views.sql.columns import Types, TypeTeller
from tidemill.jobs.views.sql.keys import Keys, Named, conjuncts, find_keys
from tidemill.jobs.views.sql.spark_text import check_spark_text
from tidemill.jobs.views.sql.text import DIALECT, Levels, named_tables, read_statement, table_levels
from tidemill.jobs.views.sql.types import holds_map, read_type, spark_type, sql_type

RESULT: Final = "tm_result"
HIDDEN: Final = "__"
SHOWN_COLUMNS: Final = 30
# Lance takes these for syntax.
UNSTORABLE: Final = frozenset(".`")
# What sqlglot calls a column without a name.
UNNAMED: Final = re.compile(r"_col_\d+")
NOT_PLAIN: Final = frozenset(
    {TokenType.JOIN, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.UNION}
    | {TokenType.EXCEPT, TokenType.INTERSECT, TokenType.WITH, TokenType.OVER, TokenType.DISTINCT}
)
PLAIN_PARTS: Final = frozenset({"kind", "expressions", "from_", "where", "limit"})

# What is inside these is not one value per row of the result, or nobody here can tell.
OPAQUE: Final = (exp.AggFunc, exp.Filter, exp.Window, exp.Query, exp.Subquery, exp.Anonymous)
UNNAMED_KEYS: Final = ("all", "cube", "rollup", "grouping_sets", "totals")
SEVERAL_KEYS: Final = (exp.Cube, exp.Rollup, exp.GroupingSets)


def sql_sources(statement: str, field: str) -> tuple[Levels, ...]:
    """The tables that a statement names, each once, in the order in which they first appear.

    Raises InvalidInput unless it is one query that always has the same answer.
    """
    tree = read_statement(statement, field)
    return tuple(dict.fromkeys(table_levels(table) for table in named_tables(tree)))


def is_plain_scan(statement: str) -> bool:
    """Whether it only takes columns of one table's rows, with a condition and a limit.

    Of a statement that cannot be read, only that it does not say otherwise.
    """
    try:
        trees = [tree for tree in DIALECT.parse(statement) if tree is not None]
    except (ParseError, TokenError, RecursionError):
        return not any(token.token_type in NOT_PLAIN for token in _tokens(statement))
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select) or any(tree.args.get(part) for part in set(tree.args) - PLAIN_PARTS):
        return False
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or _has_more_than_name(source.this):
        return False
    if any(column.table == source.this.name for column in tree.find_all(exp.Column)):
        return False
    is_star = [isinstance(item, exp.Star) and not any(item.args.values()) for item in tree.selects]
    if any(item.find(exp.Star) for item in tree.selects) and is_star != [True]:
        return False
    others = (exp.AggFunc, exp.Window, exp.Subquery, exp.Exists, exp.UDTF, exp.Explode, exp.Posexplode)
    return tree.find(*others) is None and not any(q is not tree for q in tree.find_all(exp.Query))


def _tokens(statement: str) -> Sequence[Token]:
    try:
        return DIALECT.tokenize(statement)
    except TokenError:
        return ()


def _has_more_than_name(table: exp.Table) -> bool:
    """An alias, a sample, a version, or a function in the place of the name."""
    extras = set(table.args) - {"this", "db", "catalog"}
    is_name = isinstance(table.this, exp.Identifier | exp.Dot)
    return not is_name or any(table.args[extra] for extra in extras)


def plan_sql(statement: str, sources: Sequence[tuple[Levels, pa.Schema]], field: str) -> SqlPlan:
    """The statement made ready for Spark over tables of these schemas; raises InvalidInput where it errs."""
    with bounded_nesting(statement, field):
        return _planned(statement, sources, field)


def _planned(statement: str, sources: Sequence[tuple[Levels, pa.Schema]], field: str) -> SqlPlan:
    tree = read_statement(statement, field)
    _check_names(tree, field)
    names = {levels: f"tm_{number}" for number, (levels, _) in enumerate(sources)}
    schemas = {names[levels]: _visible(schema) for levels, schema in sources}
    _check_half_joins(tree, schemas, field)
    _rename_tables(tree, names, field)
    qualified, scope = _qualified(tree, schemas, field)
    check_grouped(qualified, field)
    teller = TypeTeller(scope, schemas)
    read = teller.columns_read()
    _check_readable(read, schemas, field)
    output = _output(qualified, teller, statement, field)
    keys = find_keys(qualified, {name: Named(levels[-1], schemas[name]) for levels, name in names.items()})
    key_columns = _key_columns(qualified, keys)
    found = [
        SqlSource(
            levels=levels,
            name=name,
            columns=_wanted(read.get(name, set()), schemas[name], key_columns.get(name, ())),
            key_columns=key_columns.get(name, ()),
        )
        for levels, name in names.items()
    ]
    rewritten = _rewritten(qualified, output, keys)
    check_spark_text(rewritten, field)
    return SqlPlan(
        statement=rewritten,
        sources=tuple(found),
        output=pa.schema([pa.field(KEY, pa.int64(), nullable=False), *output]),
        full_reason=keys.reason,
    )


def _visible(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The columns that a statement sees: of another view, only those of its definition."""
    return {column.name: read_type(column) for column in schema if column.name not in INTERNAL_COLUMNS}


def _check_names(tree: exp.Query, field: str) -> None:
    for item in tree.selects:
        is_named = isinstance(item, exp.Alias | exp.Column | exp.Star | exp.Dot)
        if not is_named or not (item.alias_or_name or item.is_star):
            raise InvalidInput(field, f"the column {item.sql('spark')!r:.80} has no name; name it with AS")


def _check_half_joins(tree: exp.Query, schemas: Mapping[str, Types], field: str) -> None:
    """A name that could be a table's or a column's would be taken for the column's there."""
    columns = {name for types in schemas.values() for name in types}
    for join in tree.find_all(exp.Join):
        name = join.this.alias_or_name
        if join.kind in {"SEMI", "ANTI"} and name in columns:
            raise InvalidInput(
                field, f"{name!r:.80} is a joined table and a column; call the table otherwise"
            )


def _rename_tables(tree: exp.Query, names: Mapping[Levels, str], field: str) -> None:
    """Gives tables the names they have for Spark; what the user calls them becomes an alias."""
    tables = [(table, table_levels(table)) for table in named_tables(tree)]
    for column in list(tree.find_all(exp.Column)):
        around = tuple(part.name for part in column.parts[:-1])
        if len(around) > 1 and any(levels[-len(around) :] == around for _, levels in tables):
            column.set("db", None)
            column.set("catalog", None)
    for table, levels in tables:
        if levels not in names:
            raise InvalidInput(field, f"reads {'.'.join(levels)}, which is not among its sources")
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(levels[-1], quoted=True)))
        table.set("this", exp.to_identifier(names[levels], quoted=True))
        table.set("db", None)
        table.set("catalog", None)


def _qualified(tree: exp.Query, schemas: Mapping[str, Types], field: str) -> tuple[exp.Query, Scope]:
    """With every column's table in front of it, and every `*` written out."""
    known: dict[str, object] = {
        name: {column: exp.DataType.build(_told(kind), dialect=DIALECT) for column, kind in types.items()}
        for name, types in schemas.items()
    }
    schema = MappingSchema(known, dialect=DIALECT, normalize=False)
    try:
        found = qualify(tree, schema=schema, dialect=DIALECT, validate_qualify_columns=False, identify=True)
        _use_left_columns(found)
        scope = build_scope(found)
    except SqlglotError as error:
        raise InvalidInput(field, f"{error}; there are {_columns_there(schemas)}") from error
    if scope is None or not isinstance(found, exp.Query):
        raise InvalidInput(field, "must be one query")
    _check_columns(found, scope, schemas, field)
    return found, scope


def _told(kind: pa.DataType) -> str:
    """A type for what Spark has none for: such a column is refused when it is read."""
    read = spark_type(kind)
    return "BINARY" if read is None else sql_type(read)


def _use_left_columns(tree: exp.Expr) -> None:
    """USING is resolved as COALESCE of both sides, which is the left one unless rows without it are kept."""
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or ()
        if any(join.side in {"RIGHT", "FULL"} for join in joins):
            continue
        equal = {pair for join in joins for pair in _equal_columns(join)}
        for call in list(select.find_all(exp.Coalesce)):
            others = [(call.this, part) for part in call.expressions]
            if call.find_ancestor(exp.Select) is select and equal.issuperset(others):
                call.replace(call.this)


def _equal_columns(join: exp.Join) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Pairs of a column of an earlier table and the one of this table that has to have its value."""
    on = join.args.get("on")
    for part in [] if on is None else conjuncts(on):
        sides = [part.left, part.right] if isinstance(part, exp.EQ) else []
        columns = [side for side in sides if isinstance(side, exp.Column)]
        if len(columns) == 2:
            first, second = columns
            yield (second, first) if first.table == join.this.alias_or_name else (first, second)


def _check_columns(tree: exp.Query, scope: Scope, schemas: Mapping[str, Types], field: str) -> None:
    aliases = {name for inner in scope.traverse() for name in inner.sources}
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            raise InvalidInput(field, "'*' has to stand by itself, or in count(*)")
        if column.table in aliases or _is_output(column):
            continue
        if not column.table and sum(column.name in types for types in schemas.values()) > 1:
            raise InvalidInput(field, f"the column {column.name!r:.80} is in several tables; say of which")
        shown = f"{column.table}.{column.name}" if column.table else column.name
        raise InvalidInput(field, f"there is no column {shown!r:.80}; there are {_columns_there(schemas)}")
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            raise InvalidInput(field, "'*' has to stand by itself, or in count(*)")


def _is_output(column: exp.Column) -> bool:
    """Whether ORDER BY means a column of the result."""
    order = column.find_ancestor(exp.Order)
    query = None if order is None else order.parent
    return isinstance(query, exp.Query) and not column.table and column.name in query.named_selects


def _columns_there(schemas: Mapping[str, Types]) -> str:
    names = list(dict.fromkeys(name for types in schemas.values() for name in types))
    more = ", …" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(names[:SHOWN_COLUMNS]) + more


def _output(tree: exp.Query, teller: TypeTeller, statement: str, field: str) -> list[pa.Field]:
    found: dict[str, pa.Field] = {}
    for place, name in enumerate(tree.named_selects):
        shown = tree.selects[place].unalias().sql("spark")
        if not name or (UNNAMED.fullmatch(name) and name not in statement):
            raise InvalidInput(field, f"the column {shown!r:.80} has no name; name it with AS")
        if name.startswith(HIDDEN):
            raise InvalidInput(field, f"the column {name!r:.80} starts with '__'; rename it with AS")
        if UNSTORABLE & set(name):
            raise InvalidInput(field, f"the name {name!r:.80} has a point or a backtick; rename it with AS")
        if name in found:
            raise InvalidInput(field, f"two columns are named {name!r:.80}; rename one with AS")
        kind = teller.output_type(tree, place)
        if kind is None or spark_type(kind) is None:
            raise InvalidInput(
                field, f"the type of {name!r:.80} cannot be told; write CAST(… AS type) around {shown:.80}"
            )
        found[name] = pa.field(name, kind)
    return list(found.values())


def _check_readable(read: Mapping[str, set[str]], schemas: Mapping[str, Types], field: str) -> None:
    for name, columns in read.items():
        for column in sorted(columns):
            kind = schemas[name][column]
            if spark_type(kind) is None:
                raise InvalidInput(
                    field, f"the column {column!r:.80} is of type {kind!s:.80}, which Spark has no type for"
                )


def _key_columns(tree: exp.Query, keys: Keys) -> dict[str, tuple[str, ...]]:
    """By the names the tables have for Spark."""
    return {
        table.name: keys.columns[table.alias_or_name]
        for table in tree.find_all(exp.Table)
        if table.alias_or_name in keys.columns
    }


def _wanted(read: set[str], types: Types, keys: Sequence[str]) -> tuple[str, ...]:
    """In the order of the table; to count rows, one column is read, a narrow one if there is any."""
    if read or keys:
        return tuple(name for name in types if name in read)
    readable = [name for name, kind in types.items() if spark_type(kind) is not None]
    narrow = [name for name in readable if pa.types.is_primitive(types[name])]
    return tuple((narrow or readable)[:1])


def _rewritten(tree: exp.Query, output: Sequence[pa.Field], keys: Keys) -> str:
    columns = {column.name: _cast(tree, place, column) for place, column in enumerate(output)}
    if keys.reason is None and isinstance(tree, exp.Select):
        key = quoted(KEY)
        _add_key(tree, next(iter(keys.columns)))
    else:
        key = f"xxhash64({', '.join(map(_hashed, columns.values(), output))}) AS {quoted(KEY)}"
    made = ", ".join(f"{value} AS {quoted(name)}" for name, value in columns.items())
    return f"SELECT {key}, {made} FROM ({_spark_text(tree)}) AS {quoted(RESULT)}"


def _spark_text(tree: exp.Query) -> str:
    """With every name in backticks: sqlglot writes names of lambdas and of LATERAL VIEW without them."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.args["quoted"] = True
    for lateral in tree.find_all(exp.Lateral):
        alias = lateral.args.get("alias")
        if lateral.args.get("view") and alias is not None and alias.name:
            alias.set("this", exp.Identifier(this=quoted(alias.name)))
    return tree.sql("spark", comments=False, identify=True)


def _cast(tree: exp.Query, place: int, column: pa.Field) -> str:
    """Columns that are handed on have their type already."""
    kind = spark_type(column.type)
    is_column = isinstance(tree, exp.Select) and isinstance(tree.selects[place].unalias(), exp.Column)
    return (
        quoted(column.name)
        if is_column or kind is None
        else f"CAST({quoted(column.name)} AS {sql_type(kind)})"
    )


def _hashed(value: str, column: pa.Field) -> str:
    """Spark hashes no maps."""
    return f"to_json({value})" if holds_map(column.type) else value


def _add_key(tree: exp.Select, table: str) -> None:
    """All rows of a group have the same key."""
    key = exp.column(exp.to_identifier(KEY, quoted=True), table=exp.to_identifier(table, quoted=True))
    value = exp.Min(this=key) if tree.args.get("group") is not None else key
    tree.set("expressions", [exp.alias_(value, KEY, quoted=True), *tree.selects])


def check_grouped(tree: exp.Query, field: str) -> None:
    """Raises InvalidInput for a column that is neither grouped by nor in an aggregate."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is not None and _has_several(group):
            continue
        if group is None and not any(_has_aggregate(item) for item in select.selects):
            continue
        keys = set() if group is None else set(group.expressions)
        for item in select.selects:
            for column in _loose_columns(item, keys):
                raise InvalidInput(
                    field,
                    f"the column {column.name!r:.80} is neither in GROUP BY nor in an aggregate such as "
                    f"min({column.name:.80})",
                )


def _has_several(group: exp.Group) -> bool:
    is_unnamed = any(group.args.get(part) for part in UNNAMED_KEYS)
    return is_unnamed or any(isinstance(key, SEVERAL_KEYS) for key in group.expressions)


def _has_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Window | exp.Query | exp.Subquery):
        return False
    return isinstance(node, exp.AggFunc) or any(_has_aggregate(part) for part in node.iter_expressions())


def _loose_columns(node: exp.Expr, keys: Set[exp.Expr]) -> Iterator[exp.Column]:
    if node in keys or isinstance(node, OPAQUE):
        return
    if isinstance(node, exp.Column):
        yield node
        return
    for part in node.iter_expressions():
        yield from _loose_columns(part, keys)
