"""Functions bound to columns, in the form requests have them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, Function, FunctionKind, encode_envelope
from tidemill.sdk.functions import function_of, signature_of
from tidemill.sdk.signatures import Signature

Columns = Mapping[str, str] | Sequence[str]


@dataclass(frozen=True)
class BoundFunction:
    """A function of one value per row with the columns it reads, in the order of its parameters."""

    function: Function
    inputs: tuple[str, ...]


def bind(function: Any, *columns: str) -> BoundFunction:
    """A function with the columns it is to read, for a column of a view.

    Args:
        function: Declared with `@tidemill.udf`: a function, a class or an instance of one.
        *columns: A column for each parameter, in their order; none means those of its declaration.

    >>> import tidemill
    >>> @tidemill.udf
    ... def size(value: str) -> int:
    ...     return len(value)
    >>> sizes = docs.select("id", size=tidemill.bind(size, "text"))
    >>> sizes.output_schema().names
    ['__source_row_id', 'id', 'size']
    """
    signature = signature_of(function)
    _refuse_rows(signature)
    return BoundFunction(function_of(function), signature.bound_inputs(columns or None))


def bound(name: str, made: Any) -> BoundFunction:
    """What makes a column of a view: a bound function, or one that reads the columns of its declaration."""
    if isinstance(made, BoundFunction):
        return made
    try:
        return bind(made)
    except TypeError as error:
        raise TypeError(f"{name}= is an SQL expression or a function: {error}") from error


def _refuse_rows(signature: Signature) -> None:
    if signature.kind.makes_rows:
        how = f"table.chunk({signature.name})"
        if signature.kind is FunctionKind.TABLE:
            how = f"{signature.name}.over(table)"
        raise TypeError(f"{signature.name} makes rows, not a value; use {how} for a view")


def column_entry(
    outputs: Mapping[str, str], function: Any, inputs: Sequence[str] | None, *, auto_backfill: bool = False
) -> dict[str, Any]:
    """Columns that one function fills, each with the field of the result it takes; none means all of it."""
    signature = signature_of(function)
    _refuse_rows(signature)
    described = function_of(function)
    column = {
        "input_columns": list(signature.bound_inputs(inputs)),
        # The types of the columns are the envelope's; saying them twice could only contradict.
        "outputs": [
            {"column": name, "struct_field": field, "nullable": True} for name, field in outputs.items()
        ],
        "image": "",
        "udf": base64.b64encode(encode_envelope(described)).decode(),
        "udf_name": described.name,
        "udf_version": described.digest,
        "udf_backend": "tidemill",
    }
    return {**column, "auto_backfill": True} if auto_backfill else column


def struct_outputs(columns: Columns, function: Any) -> dict[str, str]:
    """Which field of a function's struct fills which column; names alone are fields, or in their order."""
    signature = signature_of(function)
    fields = _struct_fields(signature)
    if isinstance(columns, str) or not columns:
        raise TypeError("columns are a dict {'column': 'field'} or a list of names")
    chosen = dict(columns) if isinstance(columns, Mapping) else _by_name(signature, fields, tuple(columns))
    for name, field in chosen.items():
        if field not in fields:
            raise ValueError(
                f"'{name}' takes the field '{field}', which {signature.name} does not return; "
                f"it has {', '.join(fields)}"
            )
    return chosen


def _struct_fields(signature: Signature) -> tuple[str, ...]:
    made = signature.output.field(VALUE_FIELD).type if not signature.kind.makes_rows else None
    if made is None or not pa.types.is_struct(made):
        raise TypeError(
            f"{signature.name} does not return a struct; to fill several columns, return a NamedTuple or a "
            "dataclass, or give output=pa.struct([...])"
        )
    return tuple(made.field(index).name for index in range(made.num_fields))


def _by_name(signature: Signature, fields: tuple[str, ...], names: tuple[str, ...]) -> dict[str, str]:
    if len(set(names)) != len(names):
        raise ValueError(f"a column is named twice: {', '.join(names)}")
    if set(names) <= set(fields):
        return {name: name for name in names}
    # Taken in order although some names are fields, a value could land in the wrong column unseen.
    if len(names) != len(fields) or set(names) & set(fields):
        raise ValueError(
            f"{', '.join(names)} are neither fields of what {signature.name} returns ({', '.join(fields)}) "
            "nor one new name for each; write {'column': 'field', ...}"
        )
    return dict(zip(names, fields, strict=True))
