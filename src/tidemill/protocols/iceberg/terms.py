"""Terms of filter predicates: fields, transforms of fields, and literal values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform, parse_transform

from tidemill.catalog.model.json_values import is_storable
from tidemill.errors import InvalidInput, Unsupported

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
