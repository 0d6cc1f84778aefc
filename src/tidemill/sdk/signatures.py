"""How a function is called and what it returns, read from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

import pyarrow as pa

from tidemill.catalog.model.functions import FunctionKind, value_output
from tidemill.functions.blobs import Blob
from tidemill.sdk.hints import (
    READABLE,
    UnreadableHint,
    arrow_type,
    class_schema,
    describe,
    has_dataclass,
    row_schema,
    yielded,
)

# Columns of structs, maps and mixed values arrive as these; nothing has to be derived from them.
OPEN_PARAMETERS: Final = frozenset({Any, object, dict, list, Mapping, Sequence})
ARROW_ARRAYS: Final = (pa.Array, pa.ChunkedArray)
CHUNKER_EXAMPLE: Final = "Iterator[Passage] with a NamedTuple Passage, or output=pa.schema([...])"
TABLE_EXAMPLE: Final = "Iterator[Total] with a NamedTuple or dataclass Total, or output=pa.schema([...])"


@dataclass(frozen=True, slots=True)
class Signature:
    """What the catalog has to know about a function besides its code."""

    name: str
    kind: FunctionKind
    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    output: pa.Schema
    yields_dataclasses: bool = False
    blob_parameters: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    packages: tuple[str, ...] = ()

    def bound_inputs(self, inputs: Sequence[str] | None) -> tuple[str, ...]:
        """The columns for its parameters: those given, or those of its declaration."""
        chosen = tuple(inputs) if inputs is not None else self.inputs
        if len(chosen) != len(self.parameters):
            raise ValueError(f"{self.name} takes {', '.join(self.parameters)}; inputs= names {len(chosen)}")
        return chosen


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the decorator was told about a function, besides its hints."""

    name: str
    inputs: tuple[str, ...] | None = None
    output: pa.DataType | pa.Schema | type | None = None
    scope: Mapping[str, Any] | None = None
    timeout_seconds: float | None = None
    packages: tuple[str, ...] = ()


def read_udf(call: Callable[..., Any], declared: Declaration, *, is_method: bool = False) -> Signature:
    """The signature of a function that makes one value per row."""
    if inspect.isgeneratorfunction(call):
        raise TypeError(
            f"{declared.name} yields rows; declare it with @tidemill.chunker, or return one value per row"
        )
    hints = _hints(call, declared)
    kind, names = _called_with(declared, hints, _parameters(call, declared, is_method=is_method))
    return Signature(
        declared.name,
        kind,
        names,
        declared.inputs or names,
        value_output(_value_type(declared, hints, kind)),
        yields_dataclasses=has_dataclass(hints.get("return")),
        blob_parameters=tuple(name for name in names if is_blob(hints.get(name))),
        timeout_seconds=declared.timeout_seconds,
        packages=declared.packages,
    )


def read_chunker(call: Callable[..., Any], declared: Declaration, *, is_method: bool = False) -> Signature:
    """The signature of a function that makes any number of rows from one."""
    hints = _hints(call, declared)
    names = _parameters(call, declared, is_method=is_method)
    _check_input_count(declared, names)
    _check_parameters(declared, hints, names)
    if any(is_blob(hints[name]) for name in names):
        raise TypeError(
            f"{declared.name}: a chunker gets blobs as bytes; only @tidemill.udf reads from a Blob"
        )
    return Signature(
        declared.name,
        FunctionKind.CHUNKER,
        names,
        declared.inputs or names,
        _rows(declared, hints),
        timeout_seconds=declared.timeout_seconds,
        packages=declared.packages,
    )


def read_table_function(
    call: Callable[..., Any], declared: Declaration, *, is_method: bool = False
) -> Signature:
    """The signature of a function that reads rows itself and yields any number of them.

    It has no parameters for columns; its inputs, if there are any, are those its source has.
    """
    hints = _hints(call, declared)
    _check_source(call, declared, is_method=is_method)
    output = _declared_rows(declared, hints)
    return Signature(
        declared.name,
        FunctionKind.TABLE,
        (),
        declared.inputs or (),
        output,
        yields_dataclasses=has_dataclass(declared.output) or has_dataclass(hints.get("return")),
        timeout_seconds=declared.timeout_seconds,
        packages=declared.packages,
    )


def _check_source(call: Callable[..., Any], declared: Declaration, *, is_method: bool) -> None:
    """The one parameter it needs, and may be called with by position, is what it reads from."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(call).parameters.values())[1 if is_method else 0 :]
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    variable = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    required = [p for p in parameters if p.default is kinds.empty and p.kind not in variable]
    if not positional or any(parameter is not positional[0] for parameter in required):
        name = declared.name
        raise TypeError(f"{name} has to take one parameter, from which it reads rows: def {name}(source)")


def _declared_rows(declared: Declaration, hints: Mapping[str, Any]) -> pa.Schema:
    """The columns that a table function declares, by a schema or by a class for its rows."""
    if isinstance(declared.output, pa.Schema) and len(declared.output) > 0:
        return declared.output
    try:
        if declared.output is not None:
            return class_schema(declared.output, declared.scope or {})
        if "return" not in hints:
            raise TypeError(f"{declared.name} has no return hint; write {TABLE_EXAMPLE}")
        return class_schema(yielded(hints["return"]), declared.scope or {})
    except UnreadableHint as error:
        raise TypeError(
            f"{declared.name}: the columns it yields are not known: {error}; write {TABLE_EXAMPLE}"
        ) from error


def _called_with(
    declared: Declaration, hints: Mapping[str, Any], parameters: tuple[str, ...]
) -> tuple[FunctionKind, tuple[str, ...]]:
    """How a function is called, and the names its columns have there."""
    kind, names = _kind(declared.name, hints, parameters), parameters
    if kind is FunctionKind.BATCH:
        if declared.inputs is None:
            raise TypeError(f"{declared.name} takes a RecordBatch; name its columns with inputs=[...]")
        names = declared.inputs
    _check_input_count(declared, names)
    if kind is FunctionKind.SCALAR:
        _check_parameters(declared, hints, names)
    return kind, names


def _hints(call: Callable[..., Any], declared: Declaration) -> dict[str, Any]:
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise TypeError(f"{declared.name} is async; functions on rows are plain ones, so use def")
    try:
        return get_type_hints(call, localns=dict(declared.scope or {}), include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{declared.name} has a hint that cannot be found where it is defined: {error}"
        ) from error


def _parameters(call: Callable[..., Any], declared: Declaration, *, is_method: bool) -> tuple[str, ...]:
    """The names that get columns: the required ones, or as many as `inputs` names."""
    parameters = list(inspect.signature(call).parameters.values())[1 if is_method else 0 :]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{declared.name}: '{parameter}' has no fixed columns; name each parameter")
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise TypeError(
                f"{declared.name}: '{parameter.name}' is keyword-only; columns are passed by position"
            )
    positional = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    if not positional:
        raise TypeError(f"{declared.name} has no parameter; it needs one per input column")
    if declared.inputs is None:
        return tuple(parameter.name for parameter in required or positional)
    if len(positional) == 1:
        return (positional[0].name,)
    if not len(required) <= len(declared.inputs) <= len(positional):
        takes = _count(len(required), len(positional))
        raise TypeError(f"{declared.name} takes {takes}, inputs= names {len(declared.inputs)}")
    return tuple(parameter.name for parameter in positional[: len(declared.inputs)])


def _count(least: int, most: int) -> str:
    columns = "column" if most == 1 else "columns"
    return f"{most} {columns}" if least == most else f"{least} to {most} {columns}"


def _kind(name: str, hints: Mapping[str, Any], parameters: tuple[str, ...]) -> FunctionKind:
    found = [hints.get(parameter) for parameter in parameters]
    arrays = [hint for hint in found if _is_array(hint)]
    if arrays and len(arrays) == len(found):
        return FunctionKind.ARRAYS
    if found == [pa.RecordBatch]:
        return FunctionKind.BATCH
    if arrays or pa.RecordBatch in found:
        raise TypeError(
            f"{name} mixes ways of being called: annotate every parameter as pa.Array, "
            "or take a single pa.RecordBatch, or use Python types for all"
        )
    return FunctionKind.SCALAR


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, ARROW_ARRAYS)


def is_blob(hint: Any) -> bool:
    """Whether a parameter is read from like a file: a Blob, or one that may be missing."""
    return hint in (Blob, Blob | None)


def _check_input_count(declared: Declaration, names: tuple[str, ...]) -> None:
    if declared.inputs is not None and len(declared.inputs) != len(names):
        raise TypeError(
            f"{declared.name} takes {_count(len(names), len(names))}, inputs= names {len(declared.inputs)}"
        )


def _check_parameters(declared: Declaration, hints: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in hints:
            raise TypeError(
                f"{declared.name}: parameter '{name}' has no type hint; write for instance {name}: str"
            )
        if Blob in get_args(hints[name]) and not is_blob(hints[name]):
            raise TypeError(
                f"{declared.name}: parameter '{name}' holds a Blob; one is read as Blob or Blob | None"
            )
        if is_blob(hints[name]) or OPEN_PARAMETERS & {hints[name], get_origin(hints[name])}:
            continue
        try:
            arrow_type(hints[name], declared.scope or {})
        except UnreadableHint as error:
            raise TypeError(
                f"{declared.name}: parameter '{name}' is {describe(hints[name])}, "
                f"which no column can hold; use {READABLE}"
            ) from error


def _value_type(declared: Declaration, hints: Mapping[str, Any], kind: FunctionKind) -> pa.DataType:
    if isinstance(declared.output, pa.DataType):
        return declared.output
    if declared.output is not None:
        raise TypeError(
            f"{declared.name}: output= must be an Arrow type such as pa.float32(), not {declared.output!r}"
        )
    if kind is not FunctionKind.SCALAR:
        raise TypeError(
            f"{declared.name} returns an Arrow array; give its type with output=, for instance pa.int64()"
        )
    if "return" not in hints:
        raise TypeError(
            f"{declared.name} has no return hint; write for instance '-> float', or give output=pa.float32()"
        )
    try:
        return arrow_type(hints["return"], declared.scope or {})
    except UnreadableHint as error:
        raise TypeError(f"{declared.name}: the return hint cannot be read: {error}") from error


def _rows(declared: Declaration, hints: Mapping[str, Any]) -> pa.Schema:
    if isinstance(declared.output, pa.Schema) and len(declared.output) > 0:
        return declared.output
    if declared.output is not None:
        raise TypeError(f"{declared.name}: output= must be a pa.schema with the columns it yields")
    if "return" not in hints:
        raise TypeError(f"{declared.name} has no return hint; write {CHUNKER_EXAMPLE}")
    try:
        return row_schema(hints["return"], declared.scope or {})
    except UnreadableHint as error:
        raise TypeError(
            f"{declared.name}: the return hint cannot be read: {error}; write {CHUNKER_EXAMPLE}"
        ) from error
