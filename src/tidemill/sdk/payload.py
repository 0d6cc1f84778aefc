"""Functions as bytes that a worker can open without the user's files: which modules travel with them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from pickle import PicklingError
from types import ModuleType
from typing import Any, Final

import cloudpickle
import pyarrow as pa

# cloudpickle keeps its list of by-value modules for the whole process.
_REGISTRY: Final = threading.Lock()
BATCH_ROWS: Final = 8192
# Part of every worker, also when they run from a source tree.
PART_OF_WORKERS: Final = frozenset({"py4j", "pyspark", "tidemill"})


def pickle_callable(call: Callable[..., Any], name: str) -> bytes:
    """The callable with everything of the user's own modules that it uses."""
    with _REGISTRY, _local_modules_by_value():
        try:
            return bytes(cloudpickle.dumps(call))
        except (TypeError, PicklingError, AttributeError, RecursionError) as error:
            raise TypeError(
                f"{name} cannot be sent to a worker: {error}; make connections, locks and models in setup() "
                "of a class, or in the function"
            ) from error


class PlainResults:
    """Calls a function and turns the dataclass instances it returns into mappings."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def setup(self) -> None:
        _set_up(self.call)

    def __call__(self, *values: Any) -> Any:
        return _plain(self.call(*values))


class RowBatches:
    """Calls a table function and collects the rows it yields into batches; its batches pass as they are."""

    def __init__(self, call: Callable[[Any], Any], output: pa.Schema) -> None:
        self.call = call
        self.output = output

    def setup(self) -> None:
        _set_up(self.call)

    def __call__(self, source: Any) -> Iterator[pa.RecordBatch | pa.Table]:
        rows: list[Sequence[Any]] = []
        for answer in _yielded(self.call(source)):
            is_row = not isinstance(answer, pa.RecordBatch | pa.Table)
            if is_row:
                rows.append(_values(answer, self.output.names))
            if rows and (not is_row or len(rows) == BATCH_ROWS):
                yield self._batch(rows)
                rows = []
            if not is_row:
                yield answer
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        columns = zip(self.output, zip(*rows, strict=True), strict=True)
        arrays = [_array(field, [_plain(value) for value in values]) for field, values in columns]
        return pa.record_batch(arrays, schema=self.output)


def _set_up(call: Callable[..., Any]) -> None:
    prepare = getattr(call, "setup", None)
    if prepare is not None:
        prepare()


def _yielded(made: Any) -> Iterable[Any]:
    """One table may be returned instead of being yielded."""
    if made is None:
        return ()
    return (made,) if isinstance(made, pa.RecordBatch | pa.Table) else made


def _values(row: Any, names: Sequence[str]) -> Sequence[Any]:
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        row = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if isinstance(row, Mapping):
        unknown = row.keys() - set(names)
        if unknown:
            raise TypeError(f"yielded unknown columns {sorted(unknown)}; the output has {list(names)}")
        return [row.get(name) for name in names]
    if not isinstance(row, tuple):
        raise TypeError(
            f"yielded a {type(row).__name__}; a RecordBatch, NamedTuple, dataclass, dict or tuple is needed"
        )
    if len(row) != len(names):
        raise TypeError(f"yielded {len(row)} values for the columns {list(names)}")
    return row


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError) as error:
        raise TypeError(f"yielded values for '{field.name}' that are no {field.type}: {error}") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@contextlib.contextmanager
def _local_modules_by_value() -> Iterator[None]:
    known = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in local_modules() if module.__name__ not in known]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def is_local(module: Any) -> bool:
    """Whether a module is the user's own: neither installed, nor built in, nor `__main__` itself."""
    if not isinstance(module, ModuleType) or module.__name__.partition(".")[0] in PART_OF_WORKERS:
        return False
    return any(not _is_installed(place) for place in _places(module))


def is_local_name(name: str | None) -> bool:
    """Whether code of the module with that name has to travel along; unknown modules have to."""
    if name is None or name == "__main__":
        return True
    module = sys.modules.get(name)
    return is_local(module) if module is not None else name.partition(".")[0] not in PART_OF_WORKERS


def local_modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name != "__main__" and is_local(module) and module.__name__ == name:
            yield module


def _places(module: ModuleType) -> list[str]:
    found = vars(module).get("__file__")
    if isinstance(found, str):
        return [found]
    # A namespace package has no file, only folders.
    search = vars(module).get("__path__") or ()
    return [place for place in search if isinstance(place, str)]


@functools.lru_cache(maxsize=4096)
def _is_installed(place: str) -> bool:
    path = Path(place).absolute()
    return any(
        path.is_relative_to(root) or path.resolve().is_relative_to(root) for root in _installed_roots()
    )


@functools.cache
def _installed_roots() -> tuple[Path, ...]:
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known.update(site.getsitepackages())
    known.add(site.getusersitepackages())
    return tuple(Path(root).absolute() for root in known if root)
