"""The columns of a statement: where each comes from, and which type it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from tidemill.jobs.views.sql.text import function_name
from tidemill.jobs.views.sql.types import WIDEST_DECIMAL, is_list, spark_type, told_type

SUM_DIGITS: Final = 10
FEWEST_QUOTIENT_DIGITS: Final = 6
WHOLE_NUMBERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
INT_LIMIT: Final = 1 << 31
BIGINT_LIMIT: Final = 1 << 63
INSTANT: Final = pa.timestamp("us", "UTC")

_FIXED: Final[Mapping[pa.DataType, tuple[type[exp.Expr], ...]]] = {
    pa.bool_(): (
        *(exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.StartsWith, exp.EndsWith, exp.Contains),
        *(exp.IsNan, exp.LogicalAnd, exp.LogicalOr, exp.Exists),
    ),
    pa.int32(): (
        *(exp.Length, exp.StrPosition, exp.Ascii, exp.BitLength, exp.Levenshtein, exp.ArraySize),
        *(exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second, exp.Quarter, exp.WeekOfYear),
        *(exp.DayOfWeek, exp.DayOfYear, exp.DayOfMonth, exp.DateDiff),
        *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile),
    ),
    pa.int64(): (
        *(exp.Count, exp.CountIf, exp.ApproxDistinct, exp.IntDiv, exp.Factorial, exp.StrToUnix),
        exp.ArrayPosition,
    ),
    pa.float64(): (
        *(exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.Median),
        *(exp.Quantile, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Skewness, exp.Kurtosis, exp.RegrSlope),
        *(exp.Sqrt, exp.Cbrt, exp.Pow, exp.Exp, exp.Ln, exp.Log, exp.Sign, exp.Degrees, exp.Radians),
        *(exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2, exp.MonthsBetween),
        *(exp.PercentRank, exp.CumeDist),
    ),
    pa.string(): (
        *(exp.Upper, exp.Lower, exp.Trim, exp.ConcatWs, exp.Replace, exp.RegexpReplace, exp.RegexpExtract),
        *(exp.Repeat, exp.Initcap, exp.MD5, exp.SHA2, exp.Hex, exp.ToBase64, exp.TimeToStr, exp.UnixToStr),
        *(
            exp.ArrayToString,
            exp.JSONFormat,
            exp.JSONExtractScalar,
            exp.Soundex,
            exp.Translate,
            exp.SplitPart,
        ),
        *(exp.Typeof, exp.Decode),
    ),
    pa.binary(): (exp.Unhex, exp.Encode),
    pa.date32(): (exp.TsOrDsToDate, exp.TsOrDsAdd, exp.LastDay, exp.AddMonths, exp.DateTrunc),
    INSTANT: (exp.TimestampTrunc,),
    pa.list_(pa.string()): (exp.RegexpSplit, exp.Split),
}
FIXED: Final[Mapping[type[exp.Expr], pa.DataType]] = {
    kind: result for result, kinds in _FIXED.items() for kind in kinds
}
# Those that sqlglot knows by their name alone.
NAMED: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("isnull", "isnotnull", "every", "some"), pa.bool_()),
    **dict.fromkeys(("cardinality", "octet_length", "hash"), pa.int32()),
    **dict.fromkeys(("xxhash64", "crc32"), pa.int64()),
    **dict.fromkeys(("mean",), pa.float64()),
    **dict.fromkeys(("format_number",), pa.string()),
    **dict.fromkeys(("make_date",), pa.date32()),
    **dict.fromkeys(("timestamp_seconds", "timestamp_millis", "timestamp_micros"), INSTANT),
    **dict.fromkeys(("to_timestamp_ntz",), pa.timestamp("us")),
}
# Whose result is of the type of their first argument.
LIKE_ARGUMENT: Final = (
    *(exp.Alias, exp.Paren, exp.Max, exp.Min, exp.Window, exp.Filter, exp.Lag, exp.Lead, exp.FirstValue),
    *(exp.LastValue, exp.IgnoreNulls, exp.RespectNulls, exp.Neg, exp.Abs, exp.Nullif, exp.ArraySort),
    *(
        exp.ArrayDistinct,
        exp.ArraySlice,
        exp.ArrayFilter,
        exp.BitwiseNot,
        exp.BitwiseAndAgg,
        exp.BitwiseOrAgg,
    ),
    *(exp.Distinct, exp.ApproxQuantile),
)
# Whose result is a text if the first argument is one; of arrays and bytes they make others.
TEXT_ONLY: Final = (exp.Concat, exp.DPipe, exp.Substring, exp.Left, exp.Right, exp.Reverse, exp.Pad)
EXTRACTED: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE"})
WHOLE_DAYS: Final = frozenset({"DAY", "DAYS", "WEEK", "WEEKS", "MONTH", "MONTHS", "YEAR", "YEARS"})


def literal_type(literal: exp.Literal) -> pa.DataType | None:
    """As Spark reads it: a number with a point is a decimal."""
    text = literal.name
    if literal.is_string:
        return pa.string()
    if text.isdigit():
        value = int(text)
        small = pa.int32() if value < INT_LIMIT else pa.int64()
        return small if value < BIGINT_LIMIT else None
    if "e" in text.lower():
        return pa.float64()
    whole, scale = _written_digits(literal)
    return pa.decimal128(whole + scale, scale) if whole + scale <= WIDEST_DECIMAL else None


def sum_type(kind: pa.DataType | None) -> pa.DataType | None:
    read = None if kind is None else spark_type(kind)
    if read is None or pa.types.is_floating(read):
        return None if read is None else pa.float64()
    if pa.types.is_decimal(read):
        return pa.decimal128(min(WIDEST_DECIMAL, read.precision + SUM_DIGITS), read.scale)
    return pa.int64() if read in WHOLE_NUMBERS else None


def rounded_type(expression: exp.Expr, kind: pa.DataType | None) -> pa.DataType | None:
    """Of round(), floor() and ceil(); how many digits a decimal keeps is left to a CAST."""
    read = None if kind is None else spark_type(kind)
    if read is None or not (pa.types.is_floating(read) or read in WHOLE_NUMBERS):
        return None
    if isinstance(expression, exp.Round):
        return read
    return None if expression.args.get("decimals") else pa.int64()


def common_type(kinds: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """The type that holds the values of all; None where Spark would turn texts or times into others."""
    if None in kinds or not kinds:
        return None
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    read = [spark_type(kind) for kind in kinds]
    if all(kind == read[0] for kind in read):
        return read[0]
    if all(kind in WHOLE_NUMBERS for kind in read):
        return max((kind for kind in read if kind is not None), key=WHOLE_NUMBERS.index)
    if any(kind is None or not _is_number(kind) for kind in read):
        return None
    if any(pa.types.is_floating(kind) for kind in read):
        return pa.float64()
    parts = [_type_digits(kind) for kind in read if kind is not None]
    scale = max(scale for _, scale in parts)
    whole = max(whole for whole, _ in parts)
    return pa.decimal128(whole + scale, scale) if whole + scale <= WIDEST_DECIMAL else None


def _is_number(kind: pa.DataType) -> bool:
    return kind in WHOLE_NUMBERS or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def arithmetic_type(expression: exp.Binary, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    sides = (spark_type(left), spark_type(right))
    if any(side is None or not _is_number(side) for side in sides):
        return _time_type(expression, left)
    if any(pa.types.is_floating(side) for side in sides) or not any(map(pa.types.is_decimal, sides)):
        return pa.float64() if isinstance(expression, exp.Div) else common_type(sides)
    return _decimal_type(expression, _digits(expression.left, sides[0]), _digits(expression.right, sides[1]))


def _time_type(expression: exp.Binary, left: pa.DataType) -> pa.DataType | None:
    """Of a date and a number of days."""
    is_moved = isinstance(expression, exp.Add | exp.Sub) and pa.types.is_date(left)
    return pa.date32() if is_moved and isinstance(expression.right, exp.Literal) else None


def shifted_type(expression: exp.Binary, left: pa.DataType | None) -> pa.DataType | None:
    """Of a time to which an interval is added: a date stays one if whole days are."""
    interval = expression.right
    if left is None or not isinstance(interval, exp.Interval):
        return None
    if pa.types.is_timestamp(left):
        return spark_type(left)
    unit = interval.args.get("unit")
    is_whole = unit is not None and unit.name.upper() in WHOLE_DAYS
    return pa.date32() if is_whole and pa.types.is_date(left) else None


def _decimal_type(
    expression: exp.Binary, left: tuple[int, int], right: tuple[int, int]
) -> pa.DataType | None:
    """Where the digits suffice: beyond that Spark drops some."""
    (whole, scale), (other_whole, other_scale) = left, right
    match expression:
        case exp.Add() | exp.Sub():
            whole, scale = max(whole, other_whole) + 1, max(scale, other_scale)
        case exp.Mul():
            whole, scale = whole + other_whole + 1, scale + other_scale
        case exp.Div():
            whole = whole + other_scale
            scale = max(FEWEST_QUOTIENT_DIGITS, scale + other_whole + other_scale + 1)
        case _:
            return None
    return pa.decimal128(whole + scale, scale) if whole + scale <= WIDEST_DECIMAL else None


def _digits(expression: exp.Expr, kind: pa.DataType) -> tuple[int, int]:
    """Before and after the point; a number that is written out has as many as it shows."""
    is_written = isinstance(expression, exp.Literal) and not expression.is_string
    return _written_digits(expression) if is_written else _type_digits(kind)


def _written_digits(literal: exp.Expr) -> tuple[int, int]:
    number = Decimal(literal.name).as_tuple()
    scale = -min(int(number.exponent), 0)
    return max(len(number.digits) - scale, 0 if scale else 1), scale


def _type_digits(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return DIGITS[kind], 0


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
