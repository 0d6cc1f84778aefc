"""`@udf` and `@chunker`: Python functions and classes as functions of the catalog."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.sdk.digest import code_digest
from tidemill.sdk.payload import PlainResults, RowBatches, pickle_callable
from tidemill.sdk.signatures import Declaration, Signature, read_chunker, read_udf

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

PYTHON_MINOR: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
CLASS_ATTRIBUTE: Final = "function"


class UDF(Generic[P, R]):
    """A decorated function. Calling it calls the function; `.function` is what the catalog keeps.

    >>> import tidemill
    >>> @tidemill.udf
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double(21)
    42
    >>> double.function.kind.value, str(double.function.value_type)
    ('scalar', 'int64')
    """

    def __init__(self, call: Callable[P, R], signature: Signature) -> None:
        self.__wrapped__ = call
        self.__doc__ = call.__doc__
        self.__name__ = getattr(call, "__name__", signature.name)
        self.signature = signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tidemill {self.signature.kind.value} function {self.signature.name}>"

    def __digest_parts__(self) -> tuple[Any, ...]:
        return (self.__wrapped__,)

    @property
    def name(self) -> str:
        """The name the catalog shows."""
        return self.signature.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns it reads unless `add_column` says otherwise."""
        return self.signature.inputs

    @property
    def output(self) -> pa.Schema:
        """One field named `value`, or the columns a chunker yields."""
        return self.signature.output

    @property
    def function(self) -> Function:
        """The function as it is now, with everything it refers to."""
        return _function(self.__wrapped__, self.signature)


class ClassFunction:
    """The `function` attribute of a decorated class: of an instance, or of one made without arguments."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def __get__(self, instance: Any, owner: type) -> Function:
        return _function(owner() if instance is None else instance, self.signature, is_stateful=True)

    def __digest_parts__(self) -> tuple[Any, ...]:
        return ()


class Decorator(Protocol):
    """What `udf` and `chunker` give when called with options."""

    @overload
    def __call__(self, target: C, /) -> C: ...  # type: ignore[overload-overlap]  # as with udf itself
    @overload
    def __call__(self, target: Callable[P, R], /) -> UDF[P, R]: ...


@overload
def udf(target: C, /) -> C: ...  # type: ignore[overload-overlap]  # a class is a callable too, and stays one
@overload
def udf(target: Callable[P, R], /) -> UDF[P, R]: ...
@overload
def udf(
    *,
    inputs: Sequence[str] | None = None,
    output: pa.DataType | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> Decorator: ...
def udf(
    target: Any = None,
    /,
    *,
    inputs: Sequence[str] | None = None,
    output: pa.DataType | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> Any:
    """Declares a function that makes one value per row, to be bound to a column with `Table.add_column`.

    How it is called follows from the hints of its parameters:

    - Python types: once per row, with the row's values;
    - `pa.Array` for each: once per batch, with an array per input column, returns an array;
    - a single `pa.RecordBatch`: once per batch, with the columns of `inputs`, returns an array.

    Of the Python types, `tidemill.Blob` is a file to read from while the call lasts: only what is read of a
    large value is fetched.

    A class with `__call__` is stateful: one instance per worker process. If it has a method `setup()`, that
    is called once there before the first row, so large objects need not be sent.

    Args:
        inputs: The columns to read, in the order of the parameters; by default the parameters' names.
        output: The Arrow type of the result; read from the return hint when not given.
        name: The name in the catalog; by default the function's own.
        timeout: How long one call may take, in seconds; a row or batch that takes longer has failed. Changing
            the limit does not make values stale.
        packages: Packages it needs besides those of the workers, in pip's notation; with other packages it is
            another version of the function.

    Raises:
        TypeError: A hint is missing or cannot be read as an Arrow type; the message says which one.
        ValueError: The timeout is not a number of seconds greater than 0.

    >>> import pyarrow as pa, pyarrow.compute as pc, tidemill
    >>> @tidemill.udf(output=pa.int32())
    ... def text_length(text: pa.Array) -> pa.Array:
    ...     return pc.utf8_length(text)
    >>> text_length(pa.array(["tide", "mill house"])).to_pylist()
    [4, 10]

    >>> @tidemill.udf(inputs=["text"], output=pa.list_(pa.float32(), 2))
    ... class Embedder:
    ...     def __init__(self, scale: float = 1.0):
    ...         self.scale = scale
    ...     def __call__(self, text: str) -> list[float]:
    ...         return [len(text) * self.scale, text.count(" ") * self.scale]
    >>> Embedder(scale=0.5)("tide mill")
    [4.5, 0.5]
    >>> Embedder(scale=0.5).function.is_stateful
    True

    >>> @tidemill.udf(timeout=2.5)
    ... def is_png(image: tidemill.Blob) -> bool:
    ...     return image.read(8).startswith(b"\\x89PNG")
    >>> is_png.function.timeout_seconds, is_png.function.blob_parameters
    (2.5, ('image',))
    """
    declaration = declared(inputs, output, name, sys._getframe(1))
    return decorate(target, limited(declaration, timeout, packages), read_udf)


@overload
def chunker(target: C, /) -> C: ...  # type: ignore[overload-overlap]  # a class is a callable too, and stays one
@overload
def chunker(target: Callable[P, R], /) -> UDF[P, R]: ...
@overload
def chunker(
    *,
    inputs: Sequence[str] | None = None,
    output: pa.Schema | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> Decorator: ...
def chunker(
    target: Any = None,
    /,
    *,
    inputs: Sequence[str] | None = None,
    output: pa.Schema | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> Any:
    """Declares a function that makes any number of rows from one, for a view made with `Table.chunk`.

    It yields NamedTuples, tuples or dicts. The columns come from the return hint `Iterator[SomeNamedTuple]`
    or from `output`, a schema. Classes work as with `udf`.

    Args:
        inputs: The columns to read, in the order of the parameters; by default the parameters' names.
        output: The schema of the yielded rows; read from the return hint when not given.
        name: The name in the catalog; by default the function's own.
        timeout: How long one source row may take, in seconds, as with `udf`.
        packages: Packages it needs besides those of the workers, in pip's notation.

    Raises:
        TypeError: A hint is missing or cannot be read as Arrow types; the message says which one.

    >>> from collections.abc import Iterator
    >>> from typing import NamedTuple
    >>> import tidemill
    >>> class Sentence(NamedTuple):
    ...     number: int
    ...     sentence: str
    >>> @tidemill.chunker
    ... def sentences(text: str) -> Iterator[Sentence]:
    ...     for number, part in enumerate(text.split(". ")):
    ...         yield Sentence(number, part)
    >>> [row.sentence for row in sentences("One. Two")]
    ['One', 'Two']
    >>> sentences.output.names
    ['number', 'sentence']
    """
    declaration = declared(inputs, output, name, sys._getframe(1))
    return decorate(target, limited(declaration, timeout, packages), read_chunker)


def signature_of(target: Any) -> Signature:
    """The signature of a decorated function, class or instance of one."""
    if isinstance(target, UDF):
        return target.signature
    found = inspect.getattr_static(
        target if isinstance(target, type) else type(target), CLASS_ATTRIBUTE, None
    )
    if isinstance(found, ClassFunction):
        return found.signature
    raise TypeError(
        f"{target!r} is not a function of the catalog; decorate it with @tidemill.udf, @tidemill.chunker or "
        "@tidemill.udtf"
    )


def function_of(target: Any) -> Function:
    """The catalog's function of a decorated function, class or instance of one."""
    signature_of(target)
    function = target.function
    assert isinstance(function, Function)
    return function


def declared(
    inputs: Sequence[str] | None,
    output: pa.DataType | pa.Schema | type | None,
    name: str | None,
    caller: FrameType,
) -> Declaration:
    """What a decorator was told; names in hints are looked up where it stands."""
    if isinstance(inputs, str):
        raise TypeError(f"inputs= is a list of column names; write inputs=[{inputs!r}]")
    columns = tuple(inputs) if inputs is not None else None
    return Declaration(name or "", columns, output, {**caller.f_globals, **caller.f_locals})


def limited(
    declaration: Declaration, timeout: float | timedelta | None, packages: Sequence[str]
) -> Declaration:
    return replace(declaration, timeout_seconds=_seconds(timeout), packages=_packages(packages))


def _seconds(timeout: float | timedelta | None) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"timeout= is a number of seconds greater than 0, not {timeout!r:.60}")
    return float(seconds)


def _packages(packages: Sequence[str]) -> tuple[str, ...]:
    if isinstance(packages, str):
        raise TypeError(f"packages= is a list of packages; write packages=[{packages!r}]")
    if not all(isinstance(package, str) and package.strip() for package in packages):
        raise TypeError(f"packages= is a list of packages in pip's notation, not {packages!r:.100}")
    return tuple(package.strip() for package in packages)


def decorate(
    target: Any,
    declaration: Declaration,
    read: Callable[..., Signature],
    wrap: Callable[[Any, Signature], Any] = UDF,
) -> Any:
    """The target as a function of the catalog, or a decorator if there is none yet."""
    if target is None:
        return lambda later: decorate(later, declaration, read, wrap)
    if not callable(target):
        raise TypeError(
            f"a function or class is needed, not {target!r}; name the options, for instance output=..."
        )
    named = replace(
        declaration,
        name=declaration.name or getattr(target, "__name__", ""),
        scope=_scope(target, declaration),
    )
    if not named.name:
        raise TypeError(f"{target!r} has no name; give one with name=")
    if isinstance(target, type):
        return _decorate_class(target, named, read)
    return wrap(target, read(target, named))


def _decorate_class(cls: type, declaration: Declaration, read: Callable[..., Signature]) -> type:
    call = inspect.getattr_static(cls, "__call__", None)
    if not inspect.isfunction(call):
        raise TypeError(
            f"{declaration.name} needs a method __call__(self, ...) that is called with the values of a row"
        )
    if CLASS_ATTRIBUTE in vars(cls):
        raise TypeError(
            f"{declaration.name} has an attribute '{CLASS_ATTRIBUTE}'; the decorator needs that name"
        )
    setattr(cls, CLASS_ATTRIBUTE, ClassFunction(read(call, declaration, is_method=True)))
    return cls


def _scope(target: Any, declaration: Declaration) -> Mapping[str, Any]:
    """Where names in hints are looked up: around the decorator, then where the function itself sees them."""
    seen = dict(declaration.scope or {})
    if inspect.isfunction(target):
        closure = inspect.getclosurevars(target).nonlocals
        seen.update(closure)
    return seen


def _function(call: Any, signature: Signature, *, is_stateful: bool = False) -> Function:
    return Function(
        name=signature.name,
        digest=_digest(call, signature),
        kind=signature.kind,
        parameters=signature.parameters,
        output=signature.output,
        payload=pickle_callable(_sent(call, signature), signature.name),
        python=PYTHON_MINOR,
        is_stateful=is_stateful,
        source=_source(call if inspect.isfunction(call) else type(call)),
        requirements=signature.packages,
        timeout_seconds=signature.timeout_seconds,
        blob_parameters=signature.blob_parameters,
    )


def _sent(call: Any, signature: Signature) -> Callable[..., Any]:
    """The callable whose results the workers can read."""
    if signature.kind is FunctionKind.TABLE:
        return RowBatches(call, signature.output)
    return PlainResults(call) if signature.yields_dataclasses else call


def _digest(call: Any, signature: Signature) -> str:
    """Of all that says what is computed: the timeout is not part of it, the packages are."""
    # Left out where there are none, so that functions without them keep the digests they have.
    extras = [part for part in (sorted(signature.packages), signature.blob_parameters) if part]
    return code_digest(
        call,
        signature.kind.value,
        signature.output,
        signature.parameters,
        PYTHON_MINOR,
        signature.yields_dataclasses,
        *extras,
    )


def _source(code: Any) -> str | None:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return None
