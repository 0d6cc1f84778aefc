"""The types that Spark gives to the results of functions and operators; each of them is tried against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from tidemill.jobs.views.sql.types import WIDEST_DECIMAL, spark_type

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
