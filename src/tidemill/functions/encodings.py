"""Functions opened, once per process, whatever they came encoded in."""

from __future__ import annotations

import base64
import inspect
import io
import json
import linecache
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import cloudpickle
import numpy as np
import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionEncoding, FunctionKind

OPEN_FUNCTIONS: Final = 64
# tenacity is in the error policies that Geneva pickles along.
HELD_PACKAGES: Final = frozenset({"geneva", "tenacity"})
# Geneva ships a copy of cloudpickle under its own name.
CLOUDPICKLE: Final = "cloudpickle"
PAYLOADS: Final = ("udf_pickle", "chunker_payload", "udtf_payload")


@dataclass(frozen=True)
class OpenFunction:
    """A callable and how to call it. `takes` are its parameters' names, as far as they are known.

    A vectorised chunker gets Arrow arrays (or one batch) and answers with a batch.
    """

    call: Callable[..., Any]
    kind: FunctionKind
    takes: tuple[str, ...] = ()
    is_vectorised: bool = False
    takes_batch: bool = False


def open_function(function: Function) -> OpenFunction:
    """Unpickles or executes the function's code, and lets a stateful one prepare itself."""
    return _open(_Code(function))


class _Code:
    """A function as a key: two with the same digest and payload are the same."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __hash__(self) -> int:
        return hash(self.function.digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Code):
            return NotImplemented
        mine, others = self.function, other.function
        return (mine.digest, mine.payload) == (others.digest, others.payload)


@lru_cache(maxsize=OPEN_FUNCTIONS)
def _open(code: _Code) -> OpenFunction:
    function = code.function
    match function.encoding:
        case FunctionEncoding.TIDEMILL:
            return OpenFunction(_prepared(cloudpickle.loads(function.payload)), function.kind)
        case FunctionEncoding.SOURCE:
            return OpenFunction(_prepared(_defined(function)), function.kind)
        case FunctionEncoding.GENEVA:
            return _opened_geneva(function)
        case FunctionEncoding.SQL:
            # Lance has evaluated the expression: its value is what comes in.
            return OpenFunction(lambda value: value, FunctionKind.ARRAYS)


def _prepared(call: Callable[..., Any]) -> Callable[..., Any]:
    setup = getattr(call, "setup", None)
    if callable(setup):
        setup()
    return call


def _defined(function: Function) -> Callable[..., Any]:
    """Runs the text as a module of its own and takes the entry point out of it."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if function.python and function.python != here:
        raise RuntimeError(f"it asks for Python {function.python}; this worker has {here}")
    name = function.entrypoint or function.name
    namespace: dict[str, Any] = {"__name__": f"function_{name}"}
    text, place = function.payload.decode(), f"<function {name}>"
    # Tracebacks show the lines.
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    exec(compile(text, place, "exec"), namespace)
    found: Any = namespace[name]
    if inspect.isclass(found):
        found = found(**function.arguments)
    call: Callable[..., Any] = found
    return call


def _opened_geneva(function: Function) -> OpenFunction:
    held = load_envelope(function.payload)
    call, parameters = held.func, _parameters(held.func)
    names = tuple(parameter.name for parameter in parameters)
    takes_batch = len(parameters) == 1 and _is_annotated(parameters[0], pa.RecordBatch)
    if function.kind is FunctionKind.CHUNKER:
        return OpenFunction(call, FunctionKind.CHUNKER, names, bool(held.batch), takes_batch)
    if function.kind is FunctionKind.TABLE:
        return OpenFunction(call, FunctionKind.TABLE)
    if takes_batch:
        return OpenFunction(call, FunctionKind.BATCH)
    if parameters and all(_is_annotated(parameter, pa.Array) for parameter in parameters):
        return OpenFunction(call, FunctionKind.ARRAYS)
    return OpenFunction(_with_arrays(call, parameters), FunctionKind.SCALAR)


def _parameters(call: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    return [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        and parameter.default is parameter.empty
    ]


def _is_annotated(parameter: inspect.Parameter, wanted: type) -> bool:
    """Hints may be text, if the function's module said so; then by the last word of it."""
    hint = parameter.annotation
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == wanted.__name__
    return inspect.isclass(hint) and issubclass(hint, wanted)


def _with_arrays(call: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Lists come as NumPy arrays where the function's hints say so."""
    wanted = [_is_annotated(parameter, np.ndarray) for parameter in parameters]
    if not any(wanted):
        return call

    def converted(values: Sequence[Any]) -> Iterator[Any]:
        for value, is_array in zip(values, wanted, strict=False):
            yield np.asarray(value) if is_array and value is not None else value

    return lambda *values: call(*converted(values))


class Held:
    """Stands for an object of a class that is not here: has its attributes, and nothing else."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.values = values
        self.__dict__.update(named)

    def __class_getitem__(cls, item: Any) -> type[Held]:
        return cls

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            self.__dict__.update(part or {})


class HeldModule(ModuleType):
    """Stands for a module that is not here: whatever it is asked for is a class of held objects."""

    def __getattr__(self, name: str) -> type[Held]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _held_class(self.__name__, name)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        parts = module.split(".")
        if parts[0] in HELD_PACKAGES:
            if parts[1:2] != [CLOUDPICKLE]:
                return _held_class(module, name)
            parts = parts[1:]
        if parts[0] == CLOUDPICKLE and name == "subimport":
            return _import
        return super().find_class(".".join(parts), name)


def load_envelope(envelope: bytes) -> Any:
    """The held UDF, Chunker or UDTF of an envelope; opening it runs code of whoever made it."""
    body = json.loads(envelope)
    for key in PAYLOADS:
        if key in body:
            return _Unpickler(io.BytesIO(base64.b64decode(body[key]))).load()
    raise ValueError(f"the envelope has none of {', '.join(PAYLOADS)}")


@cache
def _held_class(module: str, name: str) -> type[Held]:
    return type(name, (Held,), {"__module__": module})


def _import(name: str) -> ModuleType:
    return HeldModule(name) if name.split(".")[0] in HELD_PACKAGES else import_module(name)
