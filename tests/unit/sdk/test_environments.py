"""Manifests as users write them and as requests carry them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.sdk.noting import NotingServer
from tidemill.sdk.options import Manifest, manifest_request


def test_a_manifest_travels_as_json_text() -> None:
    sent = json.loads(manifest_request(Manifest(pip=["numpy"], env={"A": "b"})))
    assert sent == {"pip": ["numpy"], "env_vars": {"A": "b"}}


@pytest.mark.parametrize("text", ["small", '{"pip": ["numpy"]}'])
def test_a_name_or_json_text_travels_as_it_is(text: str) -> None:
    assert manifest_request(text) == text


@pytest.mark.parametrize("given", ["", 3, {"pip": ["numpy"]}])
def test_anything_else_is_no_manifest(given: Any) -> None:
    with pytest.raises(TypeError, match="manifest= is the name of a stored manifest"):
        manifest_request(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pip": "numpy"}, r"write pip=\['numpy'\]"),
        ({"pip": [1]}, "each a string"),
        ({"env": {"A": 1}}, "'A' has 1"),
    ],
)
def test_what_is_no_package_or_variable_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Manifest(**given)


def test_a_manifest_needs_a_name() -> None:
    with pytest.raises(ValueError, match="a manifest needs a name"):
        NotingServer().lake().drop_manifest("")
