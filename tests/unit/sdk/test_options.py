"""The options of jobs in the bodies of requests."""

from __future__ import annotations

import pytest

from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.sdk.manifests import Manifest
from tidemill.sdk.options import BACKFILL_OPTIONS, REFRESH_OPTIONS, backfill_body, preview_body, refresh_body
from tidemill.sdk.policies import skip

RENDERED = {"on_error": "skip", "manifest": "small", "policy": "incremental"}


def test_every_option_of_a_backfill_is_sent_under_its_name() -> None:
    given = {name: RENDERED.get(name, 7) for name in BACKFILL_OPTIONS}
    assert backfill_body(given) == given


def test_options_that_were_not_given_are_not_sent() -> None:
    assert backfill_body({"where": None, "concurrency": 2, "retry_failed": False}) == {
        "concurrency": 2,
        "retry_failed": False,
    }


def test_policies_and_manifests_are_sent_in_the_form_of_requests() -> None:
    body = backfill_body({"on_error": skip(limit=3), "manifest": Manifest(pip=["numpy"])})
    assert body["on_error"]["max_skipped"] == 3
    assert body["manifest"] == '{"pip": ["numpy"], "env_vars": {}}'


def test_a_preview_has_fewer_options() -> None:
    assert preview_body({"where": "id > 1", "manifest": None}) == {"where": "id > 1"}
    with pytest.raises(TypeError, match="preview has no option 'concurrency'; there are where, branch"):
        preview_body({"concurrency": 2})


def test_every_option_of_a_refresh_is_sent_under_its_name() -> None:
    given = {name: RENDERED.get(name, 7) for name in REFRESH_OPTIONS}
    assert refresh_body(given) == given


def test_a_refresh_takes_policies_and_manifests_as_a_backfill_does() -> None:
    body = refresh_body({"on_error": skip(limit=3), "manifest": Manifest(), "policy": RefreshPolicy.FULL})
    assert body["on_error"]["max_skipped"] == 3
    assert (body["manifest"], body["policy"]) == ('{"pip": [], "env_vars": {}}', "full")


def test_a_refresh_has_no_options_of_a_backfill() -> None:
    with pytest.raises(TypeError, match="refresh has no option 'where'; there are full, policy"):
        refresh_body({"where": "id > 1"})


def test_a_policy_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="policy= is one of 'auto', 'incremental', 'full', not 'ful'"):
        refresh_body({"policy": "ful"})
