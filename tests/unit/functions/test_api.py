"""Column functions behave the same in the task and in a child."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.geneva import geneva_column
from tests.unit.functions.calls import FIRST_ROW_ID, HERE, SKIP, computed, failed_rows, settings, text_call
from tidemill.catalog.model.functions import Function, FunctionKind, sql_function, value_output
from tidemill.functions.api import ColumnFunction, FunctionRaised
from tidemill.functions.isolation.pool import Isolation
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy

ODD_FAILS = "def f(x):\n    if x % 2: raise ValueError(f'{x} is odd')\n    return x * 10\n"
ARRAYS_FAIL = """
import pyarrow.compute as pc
def f(x):
    if 5 in x.to_pylist() or 6 in x.to_pylist(): raise KeyError('five or six')
    return pc.multiply(x, 10)
"""

pytestmark = pytest.mark.parametrize("isolation", Isolation)


@pytest.fixture(autouse=True)
def _without_files(request: pytest.FixtureRequest, isolation: Isolation) -> None:
    if isolation is Isolation.SANDBOX and "tmp_path" in request.fixturenames:
        pytest.skip("the function counts its calls in a file, which a sandbox does not have")


def test_a_scalar_function_is_called_row_by_row(isolation: Isolation) -> None:
    call = text_call("def f(x): return None if x == 1 else x + 1")
    assert computed(call, [0, 1, 2], settings(isolation)).values.to_pylist() == [1, None, 3]


def test_a_function_of_arrays_is_called_once(isolation: Isolation) -> None:
    call = text_call(
        "import pyarrow as pa\ndef f(x): return pa.array([len(x)] * len(x))", kind=FunctionKind.ARRAYS
    )
    assert computed(call, [0, 1, 2], settings(isolation)).values.to_pylist() == [3, 3, 3]


def test_a_batch_function_knows_its_columns_by_the_names_it_declared(isolation: Isolation) -> None:
    call = text_call("def f(batch): return batch['x']", kind=FunctionKind.BATCH)
    bound = FunctionCall(call.function, ("another",))
    given = pa.record_batch([pa.array([1, 2])], names=["__input_0"])
    with ColumnFunction(bound, pa.int64(), settings(isolation)) as function:
        assert function.compute(given, np.arange(2, dtype=np.uint64)).values.to_pylist() == [1, 2]


def test_a_geneva_function_is_called_as_its_hints_say(isolation: Isolation) -> None:
    call = FunctionCall(geneva_column("doubled", pa.int64()), ("x",))
    assert computed(call, [1, 2], settings(isolation)).values.to_pylist() == [2, 4]


def test_a_pickled_function_is_called(isolation: Isolation) -> None:
    namespace = {"offset": 100}
    exec("def f(x): return x + offset", namespace)
    function = Function(
        "f",
        f"sha256:{'1' * 64}",
        FunctionKind.SCALAR,
        ("x",),
        value_output(pa.int64()),
        cloudpickle.dumps(namespace["f"]),
        HERE,
    )
    call = FunctionCall(function, ("x",))
    assert computed(call, [1, 2], settings(isolation)).values.to_pylist() == [101, 102]


def test_an_expression_returns_its_input(isolation: Isolation) -> None:
    call = FunctionCall(sql_function("x + 1", pa.float64()), ("x",))
    assert computed(call, [1, 2], settings(isolation)).values.to_pylist() == [1.0, 2.0]


def test_no_rows_have_no_values(isolation: Isolation) -> None:
    found = computed(text_call("def f(x): return x"), pa.array([], pa.int64()), settings(isolation))
    assert found.values.equals(pa.array([], pa.int64()))


@pytest.mark.parametrize(
    "value_type",
    [pa.list_(pa.float32(), 2), pa.struct([("a", pa.int64())]), pa.dictionary(pa.int32(), pa.string())],
)
def test_values_of_any_type_come_back_as_they_are(isolation: Isolation, value_type: pa.DataType) -> None:
    samples = {"fixed_size_list": [1.0, 2.0], "struct": {"a": 1}, "dictionary": "a"}
    [sample] = [value for name, value in samples.items() if str(value_type).startswith(name)]
    found = computed(
        text_call(f"def f(x): return {sample!r}", value_type=value_type), [1], settings(isolation)
    )
    assert found.values.type.equals(value_type)
    assert found.values.to_pylist() == [sample]


def test_the_first_row_that_fails_fails_the_job(isolation: Isolation) -> None:
    with pytest.raises(FunctionRaised, match="1 is odd") as raised:
        computed(text_call(ODD_FAILS), [0, 1, 2, 3], settings(isolation))
    failure = raised.value.failure
    assert (failure.row_id, failure.exception, failure.attempts) == (FIRST_ROW_ID + 1, "ValueError", 1)
    assert "raise ValueError" in failure.traceback
    assert "tidemill" not in failure.traceback


def test_rows_that_fail_are_skipped_if_the_policy_says_so(isolation: Isolation) -> None:
    found = computed(text_call(ODD_FAILS), [0, 1, 2, 3], settings(isolation, SKIP))
    assert found.values.to_pylist() == [0, None, 20, None]
    assert [failure.message for failure in found.failures] == ["ValueError: 1 is odd", "ValueError: 3 is odd"]


def test_a_batch_that_fails_is_bisected_to_the_rows_at_fault(isolation: Isolation) -> None:
    found = computed(text_call(ARRAYS_FAIL, kind=FunctionKind.ARRAYS), range(10), settings(isolation, SKIP))
    assert found.values.to_pylist() == [0, 10, 20, 30, 40, None, None, 70, 80, 90]
    assert failed_rows(found) == [5, 6]
    with pytest.raises(FunctionRaised) as raised:
        computed(text_call(ARRAYS_FAIL, kind=FunctionKind.ARRAYS), range(10), settings(isolation))
    assert raised.value.failure.row_id == FIRST_ROW_ID + 5


def test_a_value_that_does_not_fit_its_type_is_a_failure_of_its_row(isolation: Isolation) -> None:
    found = computed(
        text_call("def f(x): return 'many' if x == 2 else x"), [1, 2, 3], settings(isolation, SKIP)
    )
    assert found.values.to_pylist() == [1, None, 3]
    assert failed_rows(found) == [1]


def test_an_array_of_the_wrong_length_is_a_failure(isolation: Isolation) -> None:
    call = text_call("def f(x): return x[:1]", kind=FunctionKind.ARRAYS)
    assert computed(call, [1, 2], settings(isolation)).values.to_pylist() == [1, 2]
    call = text_call("def f(x): return x[:0]", kind=FunctionKind.ARRAYS)
    with pytest.raises(FunctionRaised, match="0 values for 1 rows"):
        computed(call, [1, 2], settings(isolation))


def test_a_function_that_exits_fails_its_row(isolation: Isolation) -> None:
    with pytest.raises(FunctionRaised, match="SystemExit: 3"):
        computed(text_call("import sys\ndef f(x): sys.exit(3)"), [1], settings(isolation))


def test_a_function_that_cannot_be_opened_fails_without_a_row(isolation: Isolation) -> None:
    with pytest.raises(FunctionRaised, match="f cannot be opened: ZeroDivisionError") as raised:
        computed(text_call("1 / 0\ndef f(x): return x"), [1], settings(isolation))
    assert raised.value.failure.row_id is None


def counting(path: Path, body: str) -> str:
    """A function that appends each of its calls to a file."""
    return f"""
def f(x):
    with open({str(path)!r}, 'a+') as file:
        file.write(f'{{x if isinstance(x, int) else len(x)}} ')
        file.seek(0)
        calls = file.read().split()
    {body}
"""


def test_a_row_is_retried_as_the_policy_says_with_growing_pauses(
    isolation: Isolation, tmp_path: Path
) -> None:
    pauses: list[float] = []
    text = counting(
        tmp_path / "calls", "if calls.count('7') < 4 and x == 7: raise OSError('busy')\n    return x"
    )
    policy = ErrorPolicy(attempts=4, backoff_seconds=0.5)
    found = computed(text_call(text), [6, 7, 8], settings(isolation, policy), pauses.append)
    assert found.values.to_pylist() == [6, 7, 8]
    assert pauses == [0.5, 1.0, 2.0]
    assert (tmp_path / "calls").read_text().split() == ["6", "7", "8", "7", "7", "7"]


def test_a_failure_says_how_often_the_row_was_tried(isolation: Isolation) -> None:
    policy = ErrorPolicy(ErrorAction.SKIP, attempts=3)
    found = computed(text_call(ODD_FAILS), [0, 1, 2], settings(isolation, policy))
    assert [failure.attempts for failure in found.failures] == [3]
    assert found.values.to_pylist() == [0, None, 20]


@pytest.mark.parametrize(
    ("retry_on", "attempts"),
    [(("ValueError",), 2), (("builtins.ValueError",), 2), (("Exception",), 2), (("OSError",), 1)],
)
def test_only_exceptions_in_retry_on_are_retried(
    isolation: Isolation, retry_on: tuple[str, ...], attempts: int
) -> None:
    policy = ErrorPolicy(attempts=2, retry_on=retry_on)
    with pytest.raises(FunctionRaised) as raised:
        computed(text_call(ODD_FAILS), [1], settings(isolation, policy))
    assert raised.value.failure.attempts == attempts


def test_a_batch_is_retried_whole_before_it_is_bisected(isolation: Isolation, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    text = counting(path, "if len(calls) < 2: raise OSError('busy')\n    return x")
    policy = ErrorPolicy(attempts=3, retry_on=("OSError",))
    call = text_call(text, kind=FunctionKind.ARRAYS)
    assert computed(call, range(4), settings(isolation, policy)).values.to_pylist() == [0, 1, 2, 3]
    assert path.read_text().split() == ["4", "4"]


def test_rows_of_a_bisected_batch_get_the_remaining_attempts(isolation: Isolation, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    text = counting(path, "if 3 in x.to_pylist(): raise OSError('busy')\n    return x")
    policy = ErrorPolicy(ErrorAction.SKIP, attempts=4)
    found = computed(text_call(text, kind=FunctionKind.ARRAYS), range(4), settings(isolation, policy))
    assert found.values.to_pylist() == [0, 1, 2, None]
    assert path.read_text().split() == ["4", "4", "2", "2", "1", "1", "1", "1"]
    assert [failure.attempts for failure in found.failures] == [4]


def test_pauses_are_limited(isolation: Isolation) -> None:
    pauses: list[float] = []
    policy = ErrorPolicy(ErrorAction.SKIP, attempts=4, backoff_seconds=40)
    computed(text_call(ODD_FAILS), [1], settings(isolation, policy), pauses.append)
    assert pauses == [40, 60, 60]


@pytest.mark.parametrize("kind", [FunctionKind.SCALAR, FunctionKind.ARRAYS])
def test_a_call_that_takes_too_long_is_a_failure_of_its_row(isolation: Isolation, kind: FunctionKind) -> None:
    text = """
    import time
    def f(x):
        if (x == 3) if isinstance(x, int) else (3 in x.to_pylist()): time.sleep(30)
        return x
    """
    found = computed(text_call(text, kind=kind, timeout=2), range(5), settings(isolation, SKIP))
    assert found.values.to_pylist() == [0, 1, 2, None, 4]
    assert [failure.exception for failure in found.failures] == ["TimeoutError"]


def test_threads_call_in_parallel(isolation: Isolation, tmp_path: Path) -> None:
    text = f"""
    import os, threading, time
    def f(x):
        open(os.path.join({str(tmp_path)!r}, f'{{os.getpid()}}-{{threading.get_ident()}}'), 'w').close()
        give_up_at = time.monotonic() + 20
        while len(os.listdir({str(tmp_path)!r})) < 3 and time.monotonic() < give_up_at: time.sleep(0.01)
        return x + len(os.listdir({str(tmp_path)!r}))
    """
    found = computed(text_call(text), range(6), settings(isolation, threads=3))
    assert found.values.to_pylist() == [3, 4, 5, 6, 7, 8]


def test_parallel_calls_follow_the_error_policy(isolation: Isolation) -> None:
    policy = ErrorPolicy(ErrorAction.SKIP, attempts=2)
    found = computed(text_call(ODD_FAILS), range(7), settings(isolation, policy, threads=4))
    assert found.values.to_pylist() == [0, None, 20, None, 40, None, 60]
    assert failed_rows(found) == [1, 3, 5]
    with pytest.raises(FunctionRaised, match="1 is odd"):
        computed(text_call(ODD_FAILS), range(7), settings(isolation, threads=4))


def test_a_time_limit_holds_in_threads_too(isolation: Isolation) -> None:
    text = "import time\ndef f(x):\n    time.sleep(10 * (x == 1))\n    return x"
    found = computed(text_call(text, timeout=2), range(4), settings(isolation, SKIP, threads=2))
    assert found.values.to_pylist() == [0, None, 2, 3]


def test_a_stateful_function_is_set_up_once(isolation: Isolation, tmp_path: Path) -> None:
    text = f"""
    class f:
        def setup(self):
            with open({str(tmp_path / "made")!r}, 'a') as file: file.write('x')
        def __call__(self, x): return x
    """
    for _ in range(3):
        computed(text_call(text), [1], settings(isolation))
    assert (tmp_path / "made").read_text() == "x"


def test_an_array_with_invalid_buffers_is_refused(isolation: Isolation) -> None:
    text = """
    import pyarrow as pa
    def f(x):
        offsets = pa.array([0, 1 << 30], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b'a')])
    """
    call = text_call(text, kind=FunctionKind.ARRAYS, value_type=pa.string())
    with pytest.raises(FunctionRaised, match="ArrowInvalid"):
        computed(call, [1], settings(isolation))


def test_values_are_right_when_a_batch_is_a_slice_of_another(isolation: Isolation) -> None:
    given = pa.record_batch([pa.array(range(100))], names=["x"]).slice(40, 3)
    call = text_call("def f(x): return x")
    with ColumnFunction(call, pa.int64(), settings(isolation)) as function:
        values = function.compute(given, np.arange(3, dtype=np.uint64)).values
    assert pc.sum(values).as_py() == 123
