"""Manifests: the packages and variables that functions find where they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tidemill.sdk.http import ServerClient

PATH = "/api/v1/manifests"


@dataclass(frozen=True)
class Manifest:
    """Packages to install and environment variables to set, for one job.

    Args:
        pip: Packages in pip's notation.
        env: Variables and their values.

    >>> import tidemill
    >>> tidemill.Manifest(pip=["pillow==11.0"], env={"MODEL": "small"}).request()
    {'pip': ['pillow==11.0'], 'env_vars': {'MODEL': 'small'}}
    """

    pip: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.pip, str):
            raise TypeError(f"pip= is a list of packages; write pip=[{self.pip!r}]")
        if not all(isinstance(package, str) for package in self.pip):
            raise TypeError(f"pip= is a list of packages, each a string: {self.pip!r:.100}")
        for name, value in self.env.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"env= has strings for names and values; {name!r:.60} has {value!r:.60}")

    def request(self) -> dict[str, Any]:
        """The form it has in a request."""
        return {"pip": list(self.pip), "env_vars": dict(self.env)}


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """A stored manifest; of its variables only the names are shown, because values may be secrets."""

    name: str
    pip: tuple[str, ...]
    env: tuple[str, ...]


def manifest_request(given: Any) -> str:
    """The name of a stored manifest, or the JSON text of one."""
    if isinstance(given, Manifest):
        return json.dumps(given.request())
    if isinstance(given, str) and given:
        return given
    raise TypeError(
        f"manifest= is the name of a stored manifest, a tidemill.Manifest or JSON text, not {given!r:.80}"
    )


def put_manifest(client: ServerClient, name: str, manifest: Manifest) -> None:
    client.put(_path(name), manifest.request())


def list_manifests(client: ServerClient) -> list[ManifestInfo]:
    found = client.get(PATH).get("manifests", [])
    return [ManifestInfo(item["name"], tuple(item["pip"]), tuple(item["env_vars"])) for item in found]


def drop_manifest(client: ServerClient, name: str) -> None:
    client.delete(_path(name))


def _path(name: str) -> str:
    if not name:
        raise ValueError("a manifest needs a name")
    return f"{PATH}/{quote(name, safe='')}"
