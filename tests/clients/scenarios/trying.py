"""Shared by the Python scenarios: where the server is, and one line of JSON for each operation."""

import json
import os
import sys
import traceback
from contextlib import contextmanager

URL = os.environ["TIDEMILL_URL"]
ICEBERG_URL = os.environ["TIDEMILL_ICEBERG_URL"]
WAREHOUSE = os.environ["TIDEMILL_WAREHOUSE"]
CREDENTIAL = os.environ["TIDEMILL_CREDENTIAL"]


@contextmanager
def operation(name):
    """What happens in the block is the operation; an exception is its failure, and the scenario goes on."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001  # Rust's panics are no exceptions of Python's
        traceback.print_exc(file=sys.stderr)
        print(
            json.dumps({"operation": name, "outcome": "fail", "detail": f"{type(error).__name__}: {error}"}),
            flush=True,
        )
    else:
        print(json.dumps({"operation": name, "outcome": "pass"}), flush=True)


def check(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def refused(action, *words):
    """The action fails, and says so with these words."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  # which classes a client raises is its own affair
        said = f"{type(error).__name__}: {error}"
        assert all(word.lower() in said.lower() for word in words), f"{words} not in {said}"
        return said
    raise AssertionError("nothing was refused")
