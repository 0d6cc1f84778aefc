"""Functions as bytes that a worker can open without the user's files."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pickle import PicklingError
from typing import Any, Final

import cloudpickle

from tidemill.sdk.modules import local_modules

# cloudpickle keeps its list of by-value modules for the whole process.
_REGISTRY: Final = threading.Lock()


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
        prepare = getattr(self.call, "setup", None)
        if prepare is not None:
            prepare()

    def __call__(self, *values: Any) -> Any:
        return _plain(self.call(*values))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
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
