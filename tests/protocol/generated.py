"""Reading what the generated client raises."""

from __future__ import annotations

import pytest
from lance_namespace_urllib3_client import ApiException
from lance_namespace_urllib3_client.models import ErrorResponse


def refusal(raised: pytest.ExceptionInfo[ApiException]) -> tuple[int | None, int | None]:
    """The status, and the code as the generated model reads it."""
    assert isinstance(raised.value.body, str)
    body = ErrorResponse.from_json(raised.value.body)
    assert body is not None
    return raised.value.status, body.code
