"""Children see nothing of the task's process, are reused, and do not outlive it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.functions.calls import computed, settings, text_call
from tidemill.catalog.model.functions import Environment
from tidemill.functions.api import CallSettings, FunctionRaised
from tidemill.functions.isolation.pool import FunctionHost, Isolation, warm_up

ENVIRONMENT = "import json, os\ndef f(x): return json.dumps(dict(os.environ))"
LONG_LIVED = """
import sys
from tests.unit.functions.calls import computed, settings, text_call
text = "import os, time\\ndef f(x):\\n    open(sys.argv[1], 'w').write(f'{os.getpid()} {os.getppid()}')\\n"
text = text.replace("sys.argv[1]", repr(sys.argv[1])) + "    time.sleep(600)"
computed(text_call(text), [1], settings())
"""


def test_a_function_does_not_see_the_environment_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    found = computed(text_call(ENVIRONMENT, value_type=pa.string()), [1], settings()).values[0].as_py()
    assert "hidden" not in found
    assert json.loads(found).keys() <= {"PATH", "HOME", "LANG", "LC_CTYPE"}


@pytest.mark.parametrize("isolation", Isolation)
def test_variables_of_the_environment_are_set_for_the_function_only(isolation: Isolation) -> None:
    how = settings(isolation, environment=Environment(variables={"MODEL": "small"}))
    call = text_call("import os\ndef f(x): return os.environ['MODEL']", value_type=pa.string())
    assert computed(call, [1], how).values.to_pylist() == ["small"]
    assert "MODEL" not in os.environ


def test_output_of_a_function_does_not_disturb_the_channel() -> None:
    text = """
    import os, sys
    def f(x):
        print('noise' * 1000, flush=True)
        os.write(1, b'noise')
        return len(sys.stdin.read())
    """
    assert computed(text_call(text), [1, 2], settings()).values.to_pylist() == [0, 0]


def test_a_child_is_reused_for_the_same_function() -> None:
    call = text_call("import os\ndef f(x): return os.getpid()")
    first, second = (computed(call, [1], settings()).values[0].as_py() for _ in range(2))
    assert first == second != os.getpid()
    other = text_call("import os\ndef f(x): return os.getpid() + 0")
    assert computed(other, [1], settings()).values[0].as_py() != first


def test_an_idle_child_that_died_is_replaced() -> None:
    call = text_call("import os\ndef f(x): return os.getpid() * 1")
    first = computed(call, [1], settings()).values[0].as_py()
    os.kill(first, signal.SIGKILL)
    _await_end(first)
    assert computed(call, [1], settings()).values[0].as_py() != first


def test_a_zygote_that_died_is_replaced() -> None:
    call = text_call("import os\ndef f(x): return os.getppid()")
    first = computed(call, [1], settings()).values[0].as_py()
    os.kill(first, signal.SIGKILL)
    _await_end(first)
    assert computed(call, [1], settings()).values[0].as_py() != first


def test_the_command_prefix_goes_before_the_command_of_the_zygote() -> None:
    prefix = ("env", "FROM_PREFIX=yes")
    how = CallSettings(FunctionHost(command_prefix=prefix))
    call = text_call("import os\ndef f(x): return os.environ['FROM_PREFIX']", value_type=pa.string())
    assert computed(call, [1], how).values.to_pylist() == ["yes"]


@pytest.mark.parametrize("prefix", [("false",), ("/no/such/program",)])
def test_a_zygote_that_cannot_be_started_is_reported(prefix: tuple[str, ...]) -> None:
    with pytest.raises(FunctionRaised, match=prefix[0]) as raised:
        computed(text_call("def f(x): return x"), [1], CallSettings(FunctionHost(command_prefix=prefix)))
    assert raised.value.failure.exception == "HostFailed"


def test_after_warming_up_no_interpreter_is_started_for_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up(FunctionHost())

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("another interpreter was started")

    monkeypatch.setattr("tidemill.functions.isolation.clients.subprocess.Popen", refuse)
    computed(text_call("def f(x): return x"), [1], settings())
    computed(text_call("def f(x): return x + 12345"), [1], settings())


def test_children_write_no_core_files_and_have_their_own_session() -> None:
    text = """
    import os, resource
    def f(x): return resource.getrlimit(resource.RLIMIT_CORE)[1] + (os.getsid(0) != os.getpid())
    """
    assert computed(text_call(text), [1], settings()).values.to_pylist() == [0]


def test_children_end_with_the_task(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", LONG_LIVED, str(path)])
    try:
        pids = [int(pid) for pid in _awaited(path).split()]
        assert all(map(_is_alive, pids))
    finally:
        parent.kill()
        parent.wait()
    _await_end(*pids)


def _await_end(*pids: int) -> None:
    give_up_at = time.monotonic() + 30
    while any(map(_is_alive, pids)) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert not any(map(_is_alive, pids))


def _awaited(path: Path) -> str:
    give_up_at = time.monotonic() + 30
    while not (path.exists() and len(path.read_text().split()) == 2) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    return path.read_text()


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
