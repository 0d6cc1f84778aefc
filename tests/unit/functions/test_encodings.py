"""Geneva's pickles are opened without Geneva."""

from __future__ import annotations

import base64
import enum
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from tidemill.functions.encodings import PlaceholderModule, load_envelope


class Slotted:
    __slots__ = ("func",)

    def __init__(self, func: Any) -> None:
        self.func = func


class Isolation(enum.Enum):
    SKIP = "skip"


@pytest.fixture
def envelope() -> Iterator[Any]:
    """Pickles like a process that has Geneva installed."""
    package, module = ModuleType("geneva"), ModuleType("geneva.transformer")
    vars(module).update(Slotted=Slotted, Isolation=Isolation)
    before = Slotted.__module__
    Slotted.__module__ = Isolation.__module__ = "geneva.transformer"

    def pickled(value: Any) -> bytes:
        sys.modules.update({"geneva": package, "geneva.transformer": module})
        try:
            raw = cloudpickle.dumps(value)
        finally:
            del sys.modules["geneva"], sys.modules["geneva.transformer"]
        return json.dumps({"udf_pickle": base64.b64encode(raw).decode()}).encode()

    yield pickled
    Slotted.__module__ = Isolation.__module__ = before


def test_an_object_of_an_absent_class_keeps_its_state(envelope: Any) -> None:
    held = load_envelope(envelope(Slotted(3)))
    assert held.func == 3
    assert not isinstance(held, Slotted)
    assert (type(held).__module__, type(held).__name__) == ("geneva.transformer", "Slotted")


def test_a_member_of_an_absent_enum_keeps_its_value(envelope: Any) -> None:
    assert load_envelope(envelope(Isolation.SKIP)).values == ("skip",)


def test_a_function_may_mention_an_absent_module(envelope: Any) -> None:
    namespace: dict[str, Any] = {"geneva": ModuleType("geneva")}
    exec("def plus(x):\n    return x + 1 if geneva else None\n", namespace)
    call = load_envelope(envelope(namespace["plus"]))
    assert call(1) == 2
    assert isinstance(call.__globals__["geneva"], PlaceholderModule)


def test_an_envelope_without_a_payload_is_refused() -> None:
    with pytest.raises(ValueError, match="udf_pickle"):
        load_envelope(b"{}")
