"""Every client of the object store finds the same settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidemill.storage.s3_client import missing_variables, read_environment

STORE = "http://store:9000"
REGIONS = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {}),
        (REGIONS, {}),
        ({"AWS_REGION": "eu-west-1"}, {"AWS_DEFAULT_REGION": "eu-west-1"}),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, {"AWS_REGION": "eu-west-1"}),
        ({**REGIONS, "AWS_ENDPOINT_URL": "https://store"}, {}),
        ({**REGIONS, "AWS_ENDPOINT_URL": STORE}, {"AWS_ALLOW_HTTP": "true"}),
        ({**REGIONS, "AWS_ENDPOINT_URL": STORE, "AWS_ALLOW_HTTP": "false"}, {}),
        ({**REGIONS, "AWS_ENDPOINT_URL_S3": STORE}, {"AWS_ALLOW_HTTP": "true"}),
        ({**REGIONS, "AWS_ENDPOINT": STORE}, {"AWS_ENDPOINT_URL": STORE, "AWS_ALLOW_HTTP": "true"}),
        (
            {"AWS_ENDPOINT_URL": "https://store"},
            {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"},
        ),
    ],
)
def test_only_what_is_missing_is_added(given: Mapping[str, str], added: Mapping[str, str]) -> None:
    assert missing_variables(given) == added


def test_an_empty_variable_is_none() -> None:
    found = read_environment({"AWS_ENDPOINT_URL": "", "AWS_REGION": ""})
    assert (found.endpoint, found.region) == (None, None)
