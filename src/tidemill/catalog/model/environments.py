"""Environments: the pip packages and environment variables of a function at run time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Environment:
    """Packages to install, in pip's notation, and variables to set. Empty: the environment of the worker."""

    packages: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.packages and not self.variables

    @property
    def packages_digest(self) -> str:
        """Identifies an installation, so the same packages are installed only once."""
        return hashlib.sha256(json.dumps(sorted(self.packages)).encode()).hexdigest()


OWN_ENVIRONMENT: Final = Environment()
