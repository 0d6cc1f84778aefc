"""Prepares filters for pyiceberg: clients send binary values as hexadecimal text, it expects bytes."""

from __future__ import annotations

from typing import Final

from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Not, Or, Reference, SetPredicate
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType

from tidemill.errors import InvalidInput
from tidemill.iceberg.planning.requests import ScanRequest

UNBINDABLE: Final = (ValueError, TypeError, ArithmeticError, LookupError)


def bindable_filter(schema: Schema, request: ScanRequest) -> BooleanExpression:
    """Raises InvalidInput if the filter has fields or values that do not fit the schema."""
    try:
        expression = _bindable(request.filter, schema, request)
        bind(schema, expression, request.is_case_sensitive)
    except UNBINDABLE as error:
        raise InvalidInput("filter", str(error)[:500]) from error
    return expression


def _bindable(expression: BooleanExpression, schema: Schema, request: ScanRequest) -> BooleanExpression:
    match expression:
        case Not():
            return Not(_bindable(expression.child, schema, request))
        case And():
            return And(
                _bindable(expression.left, schema, request), _bindable(expression.right, schema, request)
            )
        case Or():
            return Or(
                _bindable(expression.left, schema, request), _bindable(expression.right, schema, request)
            )
        case LiteralPredicate(term=Reference()) if _has_bytes(expression.term, schema, request):
            return type(expression)(expression.term, _bytes(expression.literal.value))
        case SetPredicate(term=Reference()) if _has_bytes(expression.term, schema, request):
            return type(expression)(
                expression.term, [_bytes(literal.value) for literal in expression.literals]
            )
        case _:
            return expression


def _has_bytes(term: object, schema: Schema, request: ScanRequest) -> bool:
    if not isinstance(term, Reference):
        return False
    kind = schema.find_field(term.name, request.is_case_sensitive).field_type
    return isinstance(kind, BinaryType | FixedType)


def _bytes(value: object) -> object:
    return bytes.fromhex(value) if isinstance(value, str) else value
