"""By which keys the result of a statement can be made in parts, or why it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
from sqlglot import exp

from tidemill.jobs.model.derived import quoted
from tidemill.jobs.views.sql.text import function_name

Position: TypeAlias = dict[str, str]
"""One part of a key: the column of each table that has it, by what the statement calls the table."""

KEY_KINDS: Final = {
    "integer": pa.types.is_integer,
    "boolean": pa.types.is_boolean,
    "date": pa.types.is_date,
    "timestamp": lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    "instant": lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "bytes": lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
}
INNER: Final = frozenset({("", ""), ("", "INNER"), ("", "CROSS")})
KEEPS_LEFT: Final = frozenset({("LEFT", ""), ("LEFT", "OUTER"), ("LEFT", "SEMI"), ("LEFT", "ANTI")})
HALF: Final = frozenset({("", "SEMI"), ("", "ANTI")})
EQUALITIES: Final = (exp.EQ, exp.NullSafeEQ)
SHOWN: Final = 60


@dataclass(frozen=True)
class Keys:
    """The key columns of each table, by what the statement calls it; none, and the reason why."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Named:
    """A table in FROM: its name for users, and the types of its columns."""

    name: str
    types: Mapping[str, pa.DataType]


def find_keys(tree: exp.Query, tables: Mapping[str, Named]) -> Keys:
    """The columns whose values say which rows of the sources a row of the result is made from.

    The tree is qualified; `tables` are those it reads, by their names in it.
    """
    reason = _reason_of_form(tree)
    if reason is not None or not isinstance(tree, exp.Select):
        return Keys(reason=reason)
    places = [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]
    named = {place.alias_or_name: tables[place.name] for place in places}
    twice = [named[place.alias_or_name].name for place in places if _occurs(place, places) > 1]
    if twice:
        return Keys(reason=f"{quoted(twice[0])} is read twice")
    shared = _joined(tree, named) if len(places) > 1 else None
    if isinstance(shared, str):
        return Keys(reason=shared)
    return _keyed(tree, named, shared)


def _occurs(place: exp.Table, places: Sequence[exp.Table]) -> int:
    return sum(other.name == place.name for other in places)


def _reason_of_form(tree: exp.Query) -> str | None:
    if isinstance(tree, exp.SetOperation):
        return f"{tree.key.upper()} puts whole results together"
    if tree.args.get("with_"):
        return "WITH makes a result that is used as a whole"
    if any(inner is not tree for inner in tree.find_all(exp.Query)):
        return "a query inside the query is evaluated as a whole"
    if tree.args.get("from_") is None:
        return "it reads no table"
    sources = [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]
    if tree.args.get("laterals") or any(not isinstance(source, exp.Table) for source in sources):
        return "FROM has more than tables"
    return _reason_of_clauses(tree) or _reason_of_joins(tree)


def _reason_of_clauses(tree: exp.Query) -> str | None:
    if tree.args.get("limit") or tree.args.get("offset"):
        return "an ORDER BY with LIMIT needs all rows"
    if tree.args.get("order"):
        return "ORDER BY needs all rows, and a view keeps no order: leave it out"
    if tree.args.get("qualify") or tree.find(exp.Window):
        return "a window function looks at other rows"
    group = tree.args.get("group")
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return "ROLLUP, CUBE and GROUPING SETS make totals of all rows"
    if group is not None and not group.expressions:
        return "GROUP BY ALL does not name its columns"
    distinct = tree.args.get("distinct")
    if distinct is not None and (group is not None or tree.find(exp.AggFunc)):
        return "DISTINCT compares all groups"
    return None


def _reason_of_joins(tree: exp.Query) -> str | None:
    for join in tree.args.get("joins") or ():
        if _side(join) not in INNER | KEEPS_LEFT | HALF:
            advice = ": write it as a LEFT JOIN" if join.side == "RIGHT" else ""
            return f"a {join.side or join.kind} JOIN also keeps rows without a match{advice}"
    return None


def _side(join: exp.Join) -> tuple[str, str]:
    return join.side, join.kind


def _joined(tree: exp.Select, named: Mapping[str, Named]) -> list[Position] | str:
    """The parts of the key that all tables have, as the joins say, or the reason why there are none."""
    joins: Sequence[exp.Join] = tree.args["joins"]
    first = tree.args["from_"].this.alias_or_name
    where = tree.args.get("where")
    everywhere = [where.this] if where is not None and _are_inner(joins) else []
    positions: list[Position] | None = None
    for join in joins:
        conditions = [on for on in (join.args.get("on"), *everywhere) if on is not None]
        pairs = list(_equalities(conditions, join.this.alias_or_name, named))
        if not pairs:
            return f"{quoted(named[join.this.alias_or_name].name)} is not joined by equal columns"
        positions = _extended(positions or _begun(pairs, first), pairs, join.this.alias_or_name)
        if not positions:
            return "the tables are joined by different keys"
    return positions or []


def _are_inner(joins: Sequence[exp.Join]) -> bool:
    return all(_side(join) in INNER for join in joins)


def _equalities(
    conditions: Sequence[exp.Expr], table: str, named: Mapping[str, Named]
) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Pairs of a column of another table and one of this, whose values have to be equal."""
    for equality in (part for condition in conditions for part in conjuncts(condition)):
        sides = (equality.left.unnest(), equality.right.unnest()) if isinstance(equality, EQUALITIES) else ()
        columns = [side for side in sides if isinstance(side, exp.Column)]
        if len(columns) == 2 and _same_kind(columns, named):
            left, right = columns
            if (left.table == table) != (right.table == table):
                yield (left, right) if right.table == table else (right, left)


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """The conditions that all have to hold."""
    plain = condition.unnest()
    return [part.unnest() for part in plain.flatten()] if isinstance(plain, exp.And) else [plain]


def _same_kind(columns: Sequence[exp.Column], named: Mapping[str, Named]) -> bool:
    kinds = [key_kind(_type(column, named)) for column in columns]
    return kinds[0] is not None and kinds[0] == kinds[1]


def _type(column: exp.Column, named: Mapping[str, Named]) -> pa.DataType | None:
    table = named.get(column.table)
    return None if table is None else table.types.get(column.name)


def key_kind(kind: pa.DataType | None) -> str | None:
    """Types of the same kind have comparable values that hash the same; None: not for keys."""
    if kind is None:
        return None
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return next((name for name, fits in KEY_KINDS.items() if fits(plain)), None)


def _begun(pairs: Sequence[tuple[exp.Column, exp.Column]], first: str) -> list[Position]:
    columns = dict.fromkeys(other.name for other, _ in pairs if other.table == first)
    return [{first: column} for column in columns]


def _extended(
    positions: Sequence[Position], pairs: Sequence[tuple[exp.Column, exp.Column]], table: str
) -> list[Position]:
    """Those parts of the key that the next table has as well."""
    found = []
    for position in positions:
        own = [mine.name for other, mine in pairs if position.get(other.table) == other.name]
        if own:
            found.append({**position, table: own[0]})
    return found


def _keyed(tree: exp.Select, named: Mapping[str, Named], shared: list[Position] | None) -> Keys:
    grouping = _grouping(tree)
    if grouping is None:
        return _row_keys(tree, shared)
    columns = [item for item in grouping if isinstance(item, exp.Column)]
    usable = [column for column in columns if key_kind(_type(column, named)) is not None]
    if shared is None:
        kept = [{column.table: column.name} for column in usable]
        return _chosen(kept) if kept else Keys(reason=_unusable(grouping[0], named))
    grouped = {(column.table, column.name) for column in usable}
    first = tree.args["from_"].this.alias_or_name
    is_inner = _are_inner(tree.args["joins"])
    kept = [p for p in shared if any(pair in grouped for pair in p.items() if is_inner or pair[0] == first)]
    if not kept:
        wanted = ", ".join(quoted(position[first]) for position in shared)
        return Keys(reason=f"a group has rows of several join keys: group by {wanted} as well")
    return _chosen(kept)


def _row_keys(tree: exp.Select, shared: list[Position] | None) -> Keys:
    if tree.find(exp.AggFunc) or tree.args.get("having"):
        return Keys(reason="an aggregate without GROUP BY is made of all rows")
    unknown = next((function_name(call) for call in tree.find_all(exp.Anonymous)), None)
    if unknown is not None:
        return Keys(reason=f"{unknown}() may be made of all rows")
    if shared is None:
        return Keys(reason="it has neither groups nor joins; a plain SELECT … FROM … WHERE goes row by row")
    return _chosen(shared)


def _grouping(tree: exp.Select) -> list[exp.Expr] | None:
    """What rows of the result are told apart by, if rows are put together at all."""
    group = tree.args.get("group")
    if group is not None:
        return [item.unnest() for item in group.expressions]
    if tree.args.get("distinct") is not None:
        return [item.unalias().unnest() for item in tree.selects]
    return None


def _unusable(item: exp.Expr, named: Mapping[str, Named]) -> str:
    if isinstance(item, exp.Column):
        return (
            f"the grouping key {quoted(item.name)} is of type {_type(item, named)}, which has no exact keys"
        )
    return f"the grouping key {_shown(item)} is an expression"


def _shown(expression: exp.Expr) -> str:
    """About as the user wrote it: without what was added to it."""
    copy = expression.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    text = copy.sql("spark").replace("`", "")
    return f"`{text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'}`"


def _chosen(positions: Sequence[Position]) -> Keys:
    unique = list({tuple(sorted(position.items())): position for position in positions}.values())
    return Keys({table: tuple(position[table] for position in unique) for table in unique[0]})
