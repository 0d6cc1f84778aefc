"""Every protocol has an answer for every error."""

from __future__ import annotations

from tidemill.errors import ErrorCode
from tidemill.protocols.lance.errors import LANCE_ERRORS
from tidemill.protocols.management.errors import MANAGEMENT_STATUSES


def test_every_error_has_a_lance_answer() -> None:
    assert LANCE_ERRORS.keys() == set(ErrorCode)


def test_every_error_has_a_management_answer() -> None:
    assert MANAGEMENT_STATUSES.keys() == set(ErrorCode)


def test_no_error_looks_like_success() -> None:
    assert all(400 <= error.status < 600 and 0 <= error.code <= 23 for error in LANCE_ERRORS.values())
    assert all(400 <= status < 600 for status in MANAGEMENT_STATUSES.values())


def test_no_client_is_told_to_repeat_what_may_have_happened() -> None:
    """lancedb repeats writes after these."""
    repeated = {409, 429, 500, 502, 503, 504}
    unknown = ErrorCode.COMMIT_STATE_UNKNOWN
    assert LANCE_ERRORS[unknown].status not in repeated
    assert MANAGEMENT_STATUSES[unknown] not in repeated
