"""Clusters: the named places where jobs run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.errors import InvalidInput

DEFAULT_CLUSTER: Final = "default"


class Clusters:
    """The clusters that jobs may ask for, and how many tasks each runs at a time."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._slots = dict(slots)

    def check(self, name: str | None) -> str:
        """The name of the cluster meant; raises InvalidInput when there is none of that name."""
        wanted = name or DEFAULT_CLUSTER
        if wanted not in self._slots:
            known = ", ".join(sorted(self._slots))
            raise InvalidInput("cluster", f"there is no cluster {wanted!r:.60}; configured are: {known}")
        return wanted

    def slots(self, name: str | None) -> int:
        return self._slots[self.check(name)]
