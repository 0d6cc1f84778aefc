"""Scan filters: reads the JSON forms of old and new clients, writes the one that all clients know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnaryPredicate,
    UnboundPredicate,
)
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform, parse_transform

from tidemill.catalog.model.json_values import is_storable
from tidemill.errors import InvalidInput, Unsupported

Json: TypeAlias = bool | dict[str, Any]

CONSTANTS: Final = {"true": True, "false": False}
UNARY: Final[Mapping[str, type[UnaryPredicate]]] = {
    "is-null": IsNull,
    "not-null": NotNull,
    "is-nan": IsNaN,
    "not-nan": NotNaN,
}
COMPARISONS: Final[Mapping[str, type[LiteralPredicate]]] = {
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "starts-with": StartsWith,
    "not-starts-with": NotStartsWith,
}
SETS: Final[Mapping[str, type[SetPredicate]]] = {"in": In, "not-in": NotIn}
# The comparison that results from swapping the two sides.
MIRRORED: Final = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
TYPE_NAMES: Final[Mapping[type[UnboundPredicate], str]] = {
    known: name for name, known in (*UNARY.items(), *COMPARISONS.items(), *SETS.items())
}


@dataclass(frozen=True, slots=True)
class Filter:
    """`json` is the complete filter; `expression` accepts the same rows, or more if it is not exact."""

    expression: BooleanExpression
    json: Json
    is_exact: bool = True


def read_filter(raw: Any, field: str = "filter") -> Filter:
    """Raises InvalidInput for invalid filters, Unsupported for those that old clients do not know."""
    if isinstance(raw, bool):
        return Filter(AlwaysTrue() if raw else AlwaysFalse(), raw)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise InvalidInput(field, f"must be true, false or an object with a type, not {raw!r:.60}")
    kind = raw["type"].lower().replace("_", "-")
    if kind in CONSTANTS:
        return read_filter(CONSTANTS[kind], field)
    if kind == "literal":
        return _constant(raw, field)
    if kind == "not":
        return _negation(raw, field)
    if kind in {"and", "or"}:
        return _combination(kind, raw, field)
    return _predicate(kind, raw, field)


def filter_json(expression: BooleanExpression) -> Json:
    """A pyiceberg expression as JSON with `term` and `value`."""
    match expression:
        case AlwaysTrue():
            return True
        case AlwaysFalse():
            return False
        case Not():
            return {"type": "not", "child": filter_json(expression.child)}
        case And() | Or():
            kind = "and" if isinstance(expression, And) else "or"
            return {
                "type": kind,
                "left": filter_json(expression.left),
                "right": filter_json(expression.right),
            }
        case UnboundPredicate():
            return _predicate_json(expression)
        case _:
            raise Unsupported(f"The filter {expression!s:.200} cannot be expressed in JSON")


def _predicate_json(predicate: UnboundPredicate) -> dict[str, Any]:
    if not isinstance(predicate.term, Reference):
        raise Unsupported(f"The filter {predicate!s:.200} cannot be expressed in JSON")
    predicate_json: dict[str, Any] = {"type": TYPE_NAMES[type(predicate)], "term": predicate.term.name}
    if isinstance(predicate, LiteralPredicate):
        predicate_json["value"] = _value_json(predicate.literal.value)
    elif isinstance(predicate, SetPredicate):
        values = [_value_json(literal.value) for literal in predicate.literals]
        predicate_json["values"] = sorted(values, key=lambda value: (str(type(value)), value))
    elif not isinstance(predicate, UnaryPredicate):
        raise Unsupported(f"The filter {predicate!s:.200} cannot be expressed in JSON")
    return predicate_json


def _value_json(value: Any) -> Any:
    return value.hex().upper() if isinstance(value, bytes) else value


def _constant(raw: Mapping[str, Any], field: str) -> Filter:
    value = raw.get("value")
    if not isinstance(value, bool):
        raise InvalidInput(f"{field}.value", "must be true or false where a predicate is expected")
    return read_filter(value, field)


def _negation(raw: Mapping[str, Any], field: str) -> Filter:
    child = read_filter(raw.get("child"), f"{field}.child")
    # The negation of a filter that accepts too much would accept too little.
    expression = Not(child.expression) if child.is_exact else AlwaysTrue()
    return Filter(expression, {"type": "not", "child": child.json}, child.is_exact)


def _combination(kind: str, raw: Mapping[str, Any], field: str) -> Filter:
    left = read_filter(raw.get("left"), f"{field}.left")
    right = read_filter(raw.get("right"), f"{field}.right")
    combine = And if kind == "and" else Or
    return Filter(
        combine(left.expression, right.expression),
        {"type": kind, "left": left.json, "right": right.json},
        left.is_exact and right.is_exact,
    )


def _predicate(kind: str, raw: Mapping[str, Any], field: str) -> Filter:
    if kind in UNARY:
        term = read_term(_one_of(raw, "child", "term", field), field)
        return _filter_on(kind, term, lambda name: UNARY[kind](name), {}, field)
    if kind in SETS:
        term = read_term(_one_of(raw, "child", "term", field), field)
        values = read_literals(raw.get("values"), field)
        operands = {"values": [_value_json(value) for value in values]}
        return _filter_on(kind, term, lambda name: SETS[kind](name, values), operands, field)
    if kind in COMPARISONS:
        return _comparison(kind, raw, field)
    raise InvalidInput(f"{field}.type", f"{kind!r:.60} is not an Iceberg predicate")


def _comparison(kind: str, raw: Mapping[str, Any], field: str) -> Filter:
    left, right = _one_of(raw, "left", "term", field), _one_of(raw, "right", "value", field)
    if "left" in raw and not is_term(left) and is_term(right):
        if kind not in MIRRORED:
            raise InvalidInput(f"{field}.left", f"must be a field for {kind}")
        kind, left, right = MIRRORED[kind], right, left
    if "right" in raw and is_term(right):
        raise Unsupported(
            f"{field}: comparing two fields or functions is not supported; compare with a value"
        )
    value = read_literal(right, field)
    if kind.endswith("starts-with") and not isinstance(value, str):
        raise InvalidInput(f"{field}.value", f"must be a string for {kind}, not {value!r:.60}")
    operands = {"value": _value_json(value)}
    return _filter_on(
        kind, read_term(left, field), lambda name: COMPARISONS[kind](name, value), operands, field
    )


def _filter_on(
    kind: str,
    term: Term,
    make_predicate: Callable[[str], BooleanExpression],
    operands: dict[str, Any],
    field: str,
) -> Filter:
    json = {"type": kind, "term": term, **operands}
    if not isinstance(term, str):
        # pyiceberg terms are plain fields: a predicate on a transform cannot exclude files here.
        return Filter(AlwaysTrue(), json, is_exact=False)
    try:
        return Filter(make_predicate(term), json)
    except (ValueError, TypeError) as error:
        raise InvalidInput(field, str(error)[:300]) from error


def _one_of(raw: Mapping[str, Any], key: str, old_key: str, field: str) -> Any:
    found = [raw[name] for name in (key, old_key) if raw.get(name) is not None]
    if len(found) != 1:
        raise InvalidInput(field, f"must have either {key!r} or {old_key!r}, and not null")
    return found[0]


Term: TypeAlias = str | dict[str, str]
"""The name of a field, or a transform of a field in the form that old clients understand."""

BYTE_TYPES: Final = ("binary", "fixed")
PARAMETRIC_TRANSFORMS: Final = ("bucket", "truncate")
ICEBERG_FUNCTIONS: Final = "iceberg_functions"


def is_term(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in {"reference", "apply", "transform"}


def read_term(raw: Any, field: str) -> Term:
    if isinstance(raw, str):
        return _name(raw, field)
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind == "reference":
        if "id" in raw:
            raise Unsupported(f"{field}: references by id are not supported in requests; name the field")
        return _name(raw.get("name", raw.get("term")), field)
    if kind == "transform":
        return _transform(str(raw.get("transform")), read_term(raw.get("term"), field), field)
    if kind == "apply":
        return _applied(raw, field)
    raise InvalidInput(field, f"{raw!r:.60} is not a field: use its name or a reference")


def _applied(raw: Mapping[str, Any], field: str) -> Term:
    """Iceberg transforms written as functions; old clients understand no other functions."""
    function, arguments = raw.get("function"), raw.get("arguments")
    catalog = None
    if isinstance(function, dict):
        catalog, function = function.get("catalog"), function.get("identifier")
    if isinstance(function, list) and len(function) == 1:
        function = function[0]
    if (
        not isinstance(function, str)
        or not isinstance(arguments, list)
        or catalog not in {None, ICEBERG_FUNCTIONS}
    ):
        raise Unsupported(f"{field}: only Iceberg's transforms can be applied to fields, not {raw!r:.100}")
    if function in PARAMETRIC_TRANSFORMS and len(arguments) == 2:
        return _transform(
            f"{function}[{read_literal(arguments[0], field)}]", read_term(arguments[1], field), field
        )
    if len(arguments) != 1:
        raise Unsupported(f"{field}: only Iceberg's transforms can be applied to fields, not {raw!r:.100}")
    return _transform(function, read_term(arguments[0], field), field)


def _transform(text: str, term: Term, field: str) -> Term:
    if not isinstance(term, str):
        raise Unsupported(f"{field}: a transform is applied to a field, not to another transform")
    unknown = Unsupported(f"{field}: {text!r:.60} is not a known transform")
    try:
        transform = parse_transform(text)
    except (ValueError, TypeError) as error:
        raise unknown from error
    if isinstance(transform, UnknownTransform | VoidTransform):
        raise unknown
    if isinstance(transform, IdentityTransform):
        return term
    return {"type": "transform", "transform": str(transform), "term": term}


def _name(raw: Any, field: str) -> str:
    if not isinstance(raw, str) or not raw or not is_storable(raw):
        raise InvalidInput(field, f"{raw!r:.60} is not the name of a field")
    return raw


def read_literals(raw: Any, field: str) -> list[Any]:
    data_type = None
    if isinstance(raw, dict) and raw.get("type") == "literals":
        raw, data_type = raw.get("values"), raw.get("data-type")
    if not isinstance(raw, list):
        raise InvalidInput(f"{field}.values", "must be a list of values")
    return [read_literal(value, field, data_type) for value in raw]


def read_literal(raw: Any, field: str, data_type: Any = None) -> Any:
    if isinstance(raw, dict) and raw.get("type") == "literal":
        raw, data_type = raw.get("value"), raw.get("data-type", data_type)
    if not isinstance(raw, bool | int | float | str):
        raise InvalidInput(field, f"{raw!r:.60} is not a value to compare with; use is-null for null")
    if isinstance(raw, str) and isinstance(data_type, str) and data_type.startswith(BYTE_TYPES):
        return _bytes(raw, field)
    return raw


def _bytes(text: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInput(field, f"{text!r:.60} is not hexadecimal") from error
