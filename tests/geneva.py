"""Functions as a real Geneva client sends them; see tests/data/README.md."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    decode_schema,
    geneva_function,
    value_output,
)

ENVELOPES: Final[dict[str, str]] = json.loads(
    (Path(__file__).parent / "data" / "geneva_functions.json").read_text()
)


# A pickle of a function holds bytecode, which no other Python can run.
PICKLED_WITH: Final = (3, 11)


def _envelope(name: str) -> bytes:
    if sys.version_info[:2] != PICKLED_WITH:
        pytest.skip("the Geneva functions were pickled with another Python")
    return base64.b64decode(ENVELOPES[name])


def geneva_column(name: str, value_type: pa.DataType) -> Function:
    envelope = _envelope(name)
    return geneva_function(name, FunctionKind.VALUES, envelope, value_output(value_type))


def geneva_rows(name: str, kind: FunctionKind) -> Function:
    envelope = _envelope(name)
    body: dict[str, Any] = json.loads(envelope)
    return geneva_function(name, kind, envelope, decode_schema(body["output_schema_bytes"], "udtf"))
