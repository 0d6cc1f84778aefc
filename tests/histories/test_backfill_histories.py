"""Random lives of a table: each backfill computes what has to be computed, and no more, and loses nothing."""

from __future__ import annotations

import pytest

from tests.histories.backfills import BackfillHistory, ForeignBackfillHistory
from tests.histories.settings import follow_share

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("share", range(10))
def test_random_histories(share: int) -> None:
    follow_share(BackfillHistory, share, 10, 12)


@pytest.mark.parametrize("share", range(3))
def test_random_histories_without_stable_row_ids(share: int) -> None:
    follow_share(ForeignBackfillHistory, share, 10, 12)
