"""The identity of a function's code: equal for equal code in every process, another after any change.

How code was written does not matter: comments, formatting, docstrings, hints, names of files and lines. Code
that reads docstrings or source text is the exception: then those count as well, wherever they are.
"""

from __future__ import annotations

import copyreg
import enum
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pickle import PicklingError
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.sdk.bytecode import DOC, DOC_READERS, SOURCE_READERS, globals_read, names_read, steps_of
from tidemill.sdk.payload import is_local, is_local_name

# What a code object does; file names, line numbers and qualified names say only where it was written.
BEHAVIOUR_FLAGS: Final = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
# Globals that say where code was written.
PLACE_NAMES: Final = frozenset({"__builtins__", "__file__", "__name__", "__qualname__", "__spec__"})
# Attributes of classes that say where they were written, or that every process creates again.
CLASS_NOISE: Final = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__conditional_annotations__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__qualname__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, bytearray, type(Ellipsis), range)


def code_digest(*parts: Any) -> str:
    """`sha256:` and the hash of functions, classes, instances and plain values, with all they refer to."""
    walk = _Walk()
    walk.value(parts)
    if walk.texts_read:
        walk = _Walk(texts=frozenset(walk.texts_read))
        walk.value(parts)
    return f"sha256:{walk.hexdigest()}"


class _Walk:
    """One pass over a graph of values; what was seen before is named by its number, so cycles end.

    `texts_read` are the ways in which the code was found to read docstrings or source, `texts` those that are
    known from an earlier pass.
    """

    def __init__(
        self, seen: Mapping[int, tuple[int, Any]] | None = None, texts: frozenset[str] = frozenset()
    ) -> None:
        self._hash = hashlib.sha256()
        self._seen = dict(seen or {})
        self._texts = texts
        self.texts_read: set[str] = set()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def value(self, value: Any) -> None:
        if isinstance(value, PLAIN) and type(value) in PLAIN:
            self._token("plain", type(value).__name__, repr(value))
        elif isinstance(value, tuple | frozenset | set) and type(value) in (tuple, frozenset, set):
            self._collection(value)
        elif isinstance(value, CodeType):
            self._code(value)
        elif id(value) in self._seen:
            self._token("seen", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._object(value)

    def _object(self, value: Any) -> None:
        if not isinstance(value, type) and hasattr(value, "__digest_parts__"):
            self.value(value.__digest_parts__())
        elif isinstance(value, ModuleType):
            self._token("module", value.__name__)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif type(value) is list:
            self._sequence("list", value)
        elif type(value) in (dict, MappingProxyType):
            self._sequence("dict", [part for item in value.items() for part in item])
        else:
            self._instance(value)

    def _collection(self, value: tuple[Any, ...] | frozenset[Any] | set[Any]) -> None:
        if isinstance(value, tuple):
            self._sequence("tuple", list(value))
        else:
            # The order of a set differs from process to process.
            self._token(type(value).__name__, *sorted(map(self._member, value)))

    def _member(self, item: Any) -> str:
        """The digest of an item by itself; one that leads back to its set ends where it was seen before."""
        walk = _Walk(self._seen, self._texts)
        walk.value((item,))
        self.texts_read |= walk.texts_read
        return f"sha256:{walk.hexdigest()}"

    def _sequence(self, kind: str, items: list[Any]) -> None:
        self._token(kind, str(len(items)))
        for item in items:
            self.value(item)

    def _function(self, function: FunctionType) -> None:
        if not is_local_name(function.__module__):
            self._token("installed", function.__module__, function.__qualname__)
            return
        self._token("function")
        self._code(function.__code__)
        self._text(function)
        self.value((function.__defaults__, _sorted(function.__kwdefaults__ or {})))
        self.value(tuple(_closure(function)))
        attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
        if attributes:
            self._token("attributes")
            self.value(_sorted(attributes))
        for name in sorted(globals_read(function.__code__) - PLACE_NAMES):
            if name in function.__globals__:
                self._token("global", name)
                self._global(function.__globals__[name], function.__code__)

    def _global(self, value: Any, reader: CodeType) -> None:
        if not is_local(value):
            self.value(value)
            return
        # Of a module of the user's own, only what the code names can matter.
        self._token("local module")
        for name in sorted(names_read(reader) & vars(value).keys()):
            self._token("attribute", name)
            self._global(vars(value)[name], reader)

    def _code(self, code: CodeType) -> None:
        self.texts_read |= DOC_READERS & names_read(code)
        self._token("code", str(code.co_flags & BEHAVIOUR_FLAGS))
        self._token(
            "arguments", str(code.co_argcount), str(code.co_posonlyargcount), str(code.co_kwonlyargcount)
        )
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.value((arguments, code.co_freevars, code.co_cellvars))
        for step in steps_of(code, with_docs=bool(self._texts)):
            self._token(step.operation, step.argument, step.edges)
            self.value(step.constant)
        if self._texts:
            self.value(code.co_consts[:1])

    def _text(self, written: FunctionType | type) -> None:
        """What the code can read of how it was written, if it does."""
        if self._texts:
            self._token("doc", str(vars(written).get(DOC) if isinstance(written, type) else written.__doc__))
        if self._texts & SOURCE_READERS:
            self._token("source", _source(written))

    def _class(self, cls: type) -> None:
        if not is_local_name(cls.__module__):
            self._token("installed", cls.__module__, cls.__qualname__)
            return
        self._token("class", cls.__name__)
        self._text(cls)
        self.value(cls.__bases__)
        if is_local_name(type(cls).__module__):
            self._token("metaclass")
            self.value(type(cls))
        if issubclass(cls, enum.Enum):
            self.value(tuple((member.name, member.value) for member in cls))
        for name, attribute in _sorted(_attributes(cls)):
            self._token("attribute", name)
            self.value(attribute)

    def _instance(self, value: Any) -> None:
        special = _known(value)
        if special is not None:
            self._token(*special)
        elif isinstance(value, enum.Enum):
            # Its class may have methods; combined flags have no name.
            self._token("enum", str(value.name))
            self.value((value.value, type(value)))
        elif isinstance(value, staticmethod | classmethod | MethodType):
            self.value((type(value).__name__, value.__func__, getattr(value, "__self__", None)))
        elif isinstance(value, property):
            self.value(("property", value.fget, value.fset, value.fdel))
        else:
            # A cache around a function pickles as its name alone.
            state = _state(value, with_docs=bool(self._texts))
            self.value((type(value), *state, getattr(value, "__wrapped__", None)))

    def _token(self, *words: str) -> None:
        for word in words:
            raw = word.encode("utf-8", "surrogatepass")
            self._hash.update(len(raw).to_bytes(8, "little") + raw)


def _known(value: Any) -> tuple[str, ...] | None:
    """The tokens of values whose state is inside a library."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        raw = np.ascontiguousarray(value).tobytes()
        return ("ndarray", str(value.dtype), str(value.shape), hashlib.sha256(raw).hexdigest())
    if isinstance(value, pa.Schema):
        return ("schema", value.serialize().to_pybytes().hex())
    if isinstance(value, pa.DataType):
        return ("datatype", str(value))
    if isinstance(value, re.Pattern):
        return ("pattern", repr(value.pattern), str(value.flags))
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
        return ("builtin", str(value.__module__), value.__qualname__)
    if type(value).__name__ == "cython_function_or_method":
        return ("builtin", str(value.__module__), str(value.__qualname__))
    return None


def _state(value: Any, *, with_docs: bool) -> tuple[Any, ...]:
    """What pickle would keep of an instance, in an order that is the same in every process."""
    try:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reducer is None else reducer(value)
    except (TypeError, AttributeError, PicklingError) as error:
        raise TypeError(
            f"a {type(value).__qualname__} cannot be sent to a worker; make it in setup() or in the function"
        ) from error
    if isinstance(reduced, str):
        # A wrapper is known by what it wraps; its name says where it was written.
        return () if hasattr(value, "__wrapped__") else (reduced,)
    make, arguments, *rest = reduced
    state = rest[0] if rest else None
    if isinstance(state, dict) and not with_docs:
        state = {name: part for name, part in state.items() if name != DOC}
    items = [list(part) for part in rest[1:3] if isinstance(part, Iterator)]
    return (make, arguments, _sorted(state) if isinstance(state, dict) else state, items)


def _attributes(cls: type) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in CLASS_NOISE
        and not inspect.isgetsetdescriptor(value)
        and not inspect.ismemberdescriptor(value)
    }


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # A name that has no value yet.
            yield None


def _source(written: FunctionType | type) -> str:
    try:
        return inspect.getsource(written)
    except (OSError, TypeError):
        return ""


def _sorted(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(values.items(), key=lambda item: str(item[0]))
