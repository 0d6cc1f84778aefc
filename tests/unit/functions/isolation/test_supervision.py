"""When a child dies, the row at fault is found and the other rows get their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.functions.calls import FIRST_ROW_ID, SKIP, computed, failed_rows, settings, text_call
from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.api import FunctionRaised
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy

IMPORTS = "import ctypes, os, signal, time\n"
BOTH_KINDS = pytest.mark.parametrize("kind", [FunctionKind.SCALAR, FunctionKind.ARRAYS])


def dying(how: str) -> str:
    """A function that runs this statement on rows 3 and 4."""
    return f"""{IMPORTS}
def f(x):
    if not {{3, 4}}.isdisjoint([x] if isinstance(x, int) else x.to_pylist()): {how}
    return x
"""


@BOTH_KINDS
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("os._exit(7)", "exit code 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_rows_that_crash_the_process_are_found(kind: FunctionKind, how: str, words: str) -> None:
    found = computed(text_call(dying(how), kind=kind), range(8), settings(on_error=SKIP))
    assert found.values.to_pylist() == [0, 1, 2, None, None, 5, 6, 7]
    assert failed_rows(found) == [3, 4]
    assert {failure.exception for failure in found.failures} == {"FunctionCrashed"}
    assert words in found.failures[0].message
    assert [failure.attempts for failure in found.failures] == [2, 2]


def test_a_crash_fails_the_job_unless_rows_may_be_skipped() -> None:
    with pytest.raises(FunctionRaised, match="exit code 7") as raised:
        computed(text_call(dying("os._exit(7)")), range(8), settings())
    assert raised.value.failure.row_id == FIRST_ROW_ID + 3


def test_a_crash_is_retried_only_once() -> None:
    policy = ErrorPolicy(ErrorAction.SKIP, attempts=5)
    found = computed(text_call(dying("os._exit(7)")), [3], settings(on_error=policy))
    assert [failure.attempts for failure in found.failures] == [2]


@BOTH_KINDS
def test_a_crash_that_does_not_recur_is_no_failure(kind: FunctionKind, tmp_path: Path) -> None:
    mark = str(tmp_path / "crashed")
    how = f"os.path.exists({mark!r}) or (os.mkdir({mark!r}), os._exit(1))"
    found = computed(text_call(dying(how), kind=kind), range(8), settings())
    assert found.values.to_pylist() == list(range(8))


@BOTH_KINDS
def test_a_call_that_cannot_be_interrupted_is_killed(kind: FunctionKind) -> None:
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(60)"
    text = dying(deaf).replace("{3, 4}", "{3}")
    rows = range(2, 5) if kind is FunctionKind.SCALAR else [3]
    found = computed(text_call(text, kind=kind, timeout=2), rows, settings(on_error=SKIP))
    assert found.values.to_pylist() == [None if row == 3 else row for row in rows]
    assert [failure.exception for failure in found.failures] == ["TimeoutError"]
    assert "could not be interrupted" in found.failures[0].message


def test_results_from_before_a_crash_are_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "calls")
    text = f"""{IMPORTS}
def f(x):
    with open({path!r}, 'a') as file: file.write(str(x))
    time.sleep(0.15)
    if x == 2: os._exit(1)
    return x
"""
    found = computed(text_call(text), range(4), settings(on_error=SKIP))
    assert found.values.to_pylist() == [0, 1, None, 3]
    assert (tmp_path / "calls").read_text() == "01223"


def test_a_function_that_kills_the_process_when_opened_fails_without_a_row() -> None:
    text = "import os\nos._exit(9)\ndef f(x): return x"
    with pytest.raises(FunctionRaised, match=r"f cannot be opened: .*exit code 9") as raised:
        computed(text_call(text), [1], settings(on_error=SKIP))
    assert (raised.value.failure.row_id, raised.value.failure.exception) == (None, "FunctionCrashed")


def test_a_row_that_needs_too_much_memory_fails_alone() -> None:
    text = "def f(x): return len(bytearray(x << 30))"
    found = computed(text_call(text), [0, 64, 0], settings(on_error=SKIP, memory_bytes=8 << 30))
    assert found.values.to_pylist() == [0, None, 0]
    assert [failure.exception for failure in found.failures] == ["MemoryError"]


def test_crashes_of_parallel_children_are_told_apart() -> None:
    found = computed(text_call(dying("os._exit(7)")), range(8), settings(on_error=SKIP, threads=3))
    assert found.values.to_pylist() == [0, 1, 2, None, None, 5, 6, 7]


def test_a_child_that_sends_garbage_is_replaced(tmp_path: Path) -> None:
    mark = str(tmp_path / "garbled")
    text = f"""
import os, stat
def f(x):
    if not os.path.exists({mark!r}):
        os.mkdir({mark!r})
        for fd in range(3, 20):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'\\xff' * 64)
            except OSError: pass
    return x
"""
    assert computed(text_call(text), [1], settings()).values.to_pylist() == [1]
