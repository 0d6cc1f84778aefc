"""Many and long histories, 5,000 of each kind: `make test-deep`.

Shares that have passed with the same code are skipped and say so; see `deep`.
"""

from __future__ import annotations

import pytest

from tests.histories.deep import KINDS, ROOT, SHARES, HistoryLog, follow

pytestmark = [pytest.mark.deep, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", KINDS)
def test_long_histories(kind: str, share: int) -> None:
    log = HistoryLog(ROOT / ".deep", kind)
    if log.has_passed(share):
        pytest.skip("passed before with the same code")
    follow(kind, share, log)
