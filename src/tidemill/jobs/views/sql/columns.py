"""The columns of a statement: where each comes from, and which type it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from tidemill.jobs.views.sql.functions import (
    EXTRACTED,
    FIXED,
    LIKE_ARGUMENT,
    NAMED,
    TEXT_ONLY,
    arithmetic_type,
    common_type,
    literal_type,
    rounded_type,
    shifted_type,
    sum_type,
)
from tidemill.jobs.views.sql.text import function_name
from tidemill.jobs.views.sql.types import is_list, spark_type, told_type

Types: TypeAlias = Mapping[str, pa.DataType]
"""The types of a table's columns, by name."""


class TypeTeller:
    """Tells the Arrow types of expressions of a statement whose columns are qualified.

    A type that is told wrong would cut values when they are cast to it, so only those are told that are
    known to be what Spark has.
    """

    def __init__(self, root: Scope, schemas: Mapping[str, Types]) -> None:
        self._schemas = schemas
        self._columns = [(column, scope) for scope in root.traverse() for column in scope.columns]
        self._scopes = {id(column): scope for column, scope in self._columns}

    def columns_read(self) -> dict[str, set[str]]:
        """The columns that are read of each table."""
        found: dict[str, set[str]] = {}
        for column, _ in self._columns:
            source = self._source(column)
            if isinstance(source, exp.Table):
                found.setdefault(source.name, set()).add(column.name)
        return found

    def output_type(self, query: exp.Expr, place: int) -> pa.DataType | None:
        """The type of that column of a query's result; None where it cannot be told."""
        if isinstance(query, exp.SetOperation):
            return common_type([self.output_type(side, place) for side in (query.left, query.right)])
        if isinstance(query, exp.Subquery):
            return self.output_type(query.unnest(), place)
        selects = query.selects if isinstance(query, exp.Query) else []
        return self.type_of(selects[place]) if place < len(selects) else None

    def type_of(self, expression: exp.Expr) -> pa.DataType | None:
        """None where it cannot be told."""
        if isinstance(expression, LIKE_ARGUMENT):
            return self.type_of(_aggregated(expression))
        match expression:
            case exp.Column():
                return self._column(expression)
            case exp.Literal():
                return literal_type(expression)
            case exp.Cast():
                return told_type(expression.to)
            case exp.Dot():
                return self._inside(expression)
            case exp.Bracket():
                return self._element(expression)
            case exp.Query():
                return self.output_type(expression, 0)
            case _:
                return self._computed(expression)

    def _computed(self, expression: exp.Expr) -> pa.DataType | None:
        match expression:
            case exp.Sum():
                return sum_type(self.type_of(_aggregated(expression)))
            case exp.Round() | exp.Floor() | exp.Ceil():
                return rounded_type(expression, self.type_of(expression.this))
            case exp.Coalesce() | exp.If() | exp.Case() | exp.Greatest() | exp.Least() | exp.Nvl2():
                return common_type([self.type_of(part) for part in _branches(expression)])
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(expression)
            case exp.BitwiseAnd() | exp.BitwiseOr() | exp.BitwiseXor():
                return common_type([self.type_of(expression.left), self.type_of(expression.right)])
            case exp.Extract():
                return pa.int32() if expression.name.upper() in EXTRACTED else None
            case exp.Anonymous():
                return NAMED.get(function_name(expression))
            case _:
                return self._made(expression)

    def _made(self, expression: exp.Expr) -> pa.DataType | None:
        """By the function's kind, and for lists and structs by what they are made of."""
        match expression:
            case exp.Array() if expression.expressions:
                return _list_of(common_type([self.type_of(part) for part in expression.expressions]))
            case exp.ArrayAgg() | exp.ArrayUniqueAgg():
                return _list_of(self.type_of(_aggregated(expression)))
            case exp.Struct():
                return self._struct(expression)
            case exp.Explode() | exp.ArrayMax() | exp.ArrayMin():
                kind = self.type_of(expression.this)
                return kind.value_type if kind is not None and is_list(kind) else None
            case _ if isinstance(expression, TEXT_ONLY):
                kind = self.type_of(_first(expression))
                return pa.string() if kind is not None and spark_type(kind) == pa.string() else None
            case _:
                return next((FIXED[kind] for kind in type(expression).__mro__ if kind in FIXED), None)

    def _column(self, column: exp.Column) -> pa.DataType | None:
        source = self._source(column)
        if isinstance(source, exp.Table):
            return self._schemas.get(source.name, {}).get(column.name)
        if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
            names = source.expression.named_selects
            query = source.expression
            return self.output_type(query, names.index(column.name)) if column.name in names else None
        return None

    def _source(self, column: exp.Column) -> exp.Expr | Scope | None:
        """What the column is of; a query inside another also sees what is around it."""
        scope = self._scopes.get(id(column))
        while scope is not None and column.table not in scope.sources:
            scope = scope.parent
        return None if scope is None else scope.sources[column.table]

    def _inside(self, dot: exp.Dot) -> pa.DataType | None:
        around = self.type_of(dot.this)
        if around is None or not pa.types.is_struct(around):
            return None
        place = around.get_field_index(dot.expression.name)
        return None if place < 0 else around.field(place).type

    def _element(self, bracket: exp.Bracket) -> pa.DataType | None:
        around = self.type_of(bracket.this)
        if around is None or len(bracket.expressions) != 1:
            return None
        if pa.types.is_map(around):
            return around.item_type
        return around.value_type if is_list(around) else None

    def _struct(self, struct: exp.Struct) -> pa.DataType | None:
        """Only of parts that have a name of their own."""
        parts = [
            (part.alias_or_name or part.this.name, self.type_of(_value(part))) for part in struct.expressions
        ]
        known = [(name, kind) for name, kind in parts if name and kind is not None]
        return pa.struct(known) if known and len(known) == len(parts) else None

    def _arithmetic(self, expression: exp.Binary) -> pa.DataType | None:
        left = self.type_of(expression.left)
        if isinstance(expression.right, exp.Interval):
            return shifted_type(expression, left)
        right = self.type_of(expression.right)
        return None if left is None or right is None else arithmetic_type(expression, left, right)


def _aggregated(expression: exp.Expr) -> exp.Expr:
    """What a function is applied to, as in sum(DISTINCT x)."""
    argument: exp.Expr = expression.this
    if not isinstance(argument, exp.Distinct):
        return argument
    first: exp.Expr = argument.expressions[0]
    return first


def _first(expression: exp.Expr) -> exp.Expr:
    found: exp.Expr = expression.this or expression.expressions[0]
    return found


def _value(part: exp.Expr) -> exp.Expr:
    return part.expression if isinstance(part, exp.PropertyEQ) else part


def _list_of(kind: pa.DataType | None) -> pa.DataType | None:
    return None if kind is None else pa.list_(kind)


def _branches(expression: exp.Expr) -> Sequence[exp.Expr]:
    """The values that it may have; NULL is of every type."""
    match expression:
        case exp.Case():
            found = [
                *(branch.args["true"] for branch in expression.args["ifs"]),
                expression.args.get("default"),
            ]
        case exp.If() | exp.Nvl2():
            found = [expression.args["true"], expression.args.get("false")]
        case _:
            found = [expression.this, *expression.expressions]
    return [part for part in found if part is not None and not isinstance(part, exp.Null)]
