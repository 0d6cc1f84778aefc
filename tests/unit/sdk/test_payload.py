"""Functions as bytes that open where the user's files are not."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import cloudpickle
import pyarrow as pa
import pytest

from tidemill.sdk.functions import function_of, udf
from tidemill.sdk.payload import is_local, is_local_name, pickle_callable

OPEN = "import pickle, sys; function = pickle.load(open(sys.argv[1], 'rb')); print(function(20))"
PACKAGE = """
import tidemill
STEP = 2

class Helper:
    def twice(self, number):
        return number * STEP

@tidemill.udf
def answer(number: int) -> int:
    return Helper().twice(number) + STEP
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "users_own_module.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("users_own_module")
    del sys.modules["users_own_module"]


def test_a_function_opens_in_a_process_without_its_module(user_module: ModuleType, tmp_path: Path) -> None:
    stored = tmp_path / "function.pickle"
    stored.write_bytes(user_module.answer.function.payload)
    said = subprocess.run(
        [sys.executable, "-c", OPEN, str(stored)], cwd="/", capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "42"


def test_pickling_leaves_no_module_registered(user_module: ModuleType) -> None:
    before = set(cloudpickle.list_registry_pickle_by_value())
    assert user_module.answer.function.payload
    assert set(cloudpickle.list_registry_pickle_by_value()) == before


def test_a_registration_of_the_users_own_stays(user_module: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(user_module)
    try:
        assert user_module.answer.function.payload
        assert user_module.__name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(user_module)


def test_installed_modules_are_not_local(user_module: ModuleType) -> None:
    assert is_local(user_module)
    assert is_local_name("__main__")
    assert not any(is_local(module) for module in (pa, pytest, threading, sys))
    assert not is_local_name("tidemill.sdk.payload")


def test_an_instance_travels_with_its_state() -> None:
    @udf
    class Add:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def setup(self) -> None:
            self.is_ready = True

        def __call__(self, number: int) -> int:
            return number + self.amount

    opened = pickle.loads(function_of(Add(2)).payload)
    opened.setup()
    assert opened.is_ready
    assert opened(40) == 42


def test_dataclass_results_arrive_as_mappings() -> None:
    @dataclass
    class Part:
        size: int

    @dataclass
    class Whole:
        name: str
        parts: list[Part]

    @udf
    def split(text: str) -> Whole:
        return Whole(text, [Part(len(text))])

    value = pickle.loads(split.function.payload)("tide")
    assert pa.array([value], split.function.value_type).to_pylist() == [
        {"name": "tide", "parts": [{"size": 4}]}
    ]


def test_what_cannot_travel_is_refused_with_advice() -> None:
    lock = threading.Lock()

    def locked(number: int) -> int:
        with lock:
            return number

    with pytest.raises(TypeError, match=r"locked cannot be sent to a worker: .*; make .* in setup\(\)"):
        pickle_callable(locked, "locked")
