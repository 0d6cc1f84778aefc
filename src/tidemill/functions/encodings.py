"""Opens functions in each of their encodings: our pickle, Python source, Geneva's envelopes, SQL expressions.

Opening runs code of the user. A process keeps the functions it has opened. Geneva's envelopes are read
without Geneva: objects of its classes become placeholders that have their state and no behaviour.
"""

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

MAX_OPEN_FUNCTIONS: Final = 64
# Geneva pickles error policies of tenacity along with the function.
ABSENT_PACKAGES: Final = frozenset({"geneva", "tenacity"})
# Geneva ships a copy of cloudpickle under its own name.
CLOUDPICKLE: Final = "cloudpickle"
PAYLOADS: Final = ("udf_pickle", "chunker_payload", "udtf_payload")


@dataclass(frozen=True)
class OpenFunction:
    """A callable and how to call it; `parameter_names` is empty where it is not needed.

    A vectorized chunker gets Arrow arrays, or one batch, and returns a batch.
    """

    call: Callable[..., Any]
    kind: FunctionKind
    parameter_names: tuple[str, ...] = ()
    is_vectorized: bool = False
    takes_batch: bool = False


def open_function(function: Function) -> OpenFunction:
    """Unpickles or runs the function's code, and calls `setup` of a stateful function."""
    return _open(_CacheKey(function))


class _CacheKey:
    """Functions with the same digest and payload are the same."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __hash__(self) -> int:
        return hash(self.function.digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CacheKey):
            return NotImplemented
        mine, others = self.function, other.function
        return (mine.digest, mine.payload) == (others.digest, others.payload)


@lru_cache(maxsize=MAX_OPEN_FUNCTIONS)
def _open(key: _CacheKey) -> OpenFunction:
    function = key.function
    match function.encoding:
        case FunctionEncoding.TIDEMILL:
            return OpenFunction(_set_up(cloudpickle.loads(function.payload)), function.kind)
        case FunctionEncoding.SOURCE:
            return OpenFunction(_set_up(_run_source(function)), function.kind)
        case FunctionEncoding.GENEVA:
            return _open_geneva(function)
        case FunctionEncoding.SQL:
            # Lance has evaluated the expression; the input is its value.
            return OpenFunction(lambda value: value, FunctionKind.ARRAYS)


def _set_up(call: Callable[..., Any]) -> Callable[..., Any]:
    setup = getattr(call, "setup", None)
    if callable(setup):
        setup()
    return call


def _run_source(function: Function) -> Callable[..., Any]:
    """Runs the text as a module and returns its entry point."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if function.python and function.python != here:
        raise RuntimeError(f"it asks for Python {function.python}; this worker has {here}")
    name = function.entrypoint or function.name
    namespace: dict[str, Any] = {"__name__": f"function_{name}"}
    text, filename = function.payload.decode(), f"<function {name}>"
    # Makes tracebacks show the source lines.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), namespace)
    found: Any = namespace[name]
    if inspect.isclass(found):
        found = found(**function.arguments)
    call: Callable[..., Any] = found
    return call


def _open_geneva(function: Function) -> OpenFunction:
    loaded = load_envelope(function.payload)
    call, parameters = loaded.func, _parameters(loaded.func)
    names = tuple(parameter.name for parameter in parameters)
    takes_batch = len(parameters) == 1 and _is_annotated(parameters[0], pa.RecordBatch)
    if function.kind is FunctionKind.CHUNKER:
        return OpenFunction(call, FunctionKind.CHUNKER, names, bool(loaded.batch), takes_batch)
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
    """Hints are text under `from __future__ import annotations`; then the last part of the name decides."""
    hint = parameter.annotation
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == wanted.__name__
    return inspect.isclass(hint) and issubclass(hint, wanted)


def _with_arrays(call: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Passes lists as NumPy arrays to parameters with that hint."""
    wanted = [_is_annotated(parameter, np.ndarray) for parameter in parameters]
    if not any(wanted):
        return call

    def converted(values: Sequence[Any]) -> Iterator[Any]:
        for value, is_array in zip(values, wanted, strict=False):
            yield np.asarray(value) if is_array and value is not None else value

    return lambda *values: call(*converted(values))


class Placeholder:
    """An object of a class that is not installed: it has the attributes and nothing else."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.values = values
        self.__dict__.update(named)

    def __class_getitem__(cls, item: Any) -> type[Placeholder]:
        return cls

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            self.__dict__.update(part or {})


class PlaceholderModule(ModuleType):
    """A module that is not installed; its attributes are placeholder classes."""

    def __getattr__(self, name: str) -> type[Placeholder]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder_class(self.__name__, name)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        parts = module.split(".")
        if parts[0] in ABSENT_PACKAGES:
            if parts[1:2] != [CLOUDPICKLE]:
                return _placeholder_class(module, name)
            parts = parts[1:]
        if parts[0] == CLOUDPICKLE and name == "subimport":
            return _import
        return super().find_class(".".join(parts), name)


def load_envelope(envelope: bytes) -> Any:
    """The placeholder of a UDF, Chunker or UDTF. Unpickling runs code of the user."""
    body = json.loads(envelope)
    for key in PAYLOADS:
        if key in body:
            return _Unpickler(io.BytesIO(base64.b64decode(body[key]))).load()
    raise ValueError(f"the envelope has none of {', '.join(PAYLOADS)}")


@cache
def _placeholder_class(module: str, name: str) -> type[Placeholder]:
    return type(name, (Placeholder,), {"__module__": module})


def _import(name: str) -> ModuleType:
    return PlaceholderModule(name) if name.split(".")[0] in ABSENT_PACKAGES else import_module(name)
