"""Tags and branches of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput

MAX_REF_LENGTH: Final = 200
# Lance accepts letters of any script here, but then cannot list the references.
REF_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
REF_FORM: Final = "it must consist of ASCII letters, digits, '.', '_' and '-', and must not start with '.'"


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one version of one branch."""

    name: str
    version: int
    manifest_size: int
    branch: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of versions that starts at a version of another branch."""

    name: str
    parent_branch: str
    parent_version: int
    created_at: datetime
    manifest_size: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def check_tag_name(name: str) -> None:
    if not _is_usable(name):
        raise InvalidInput("tag", f"{name!r:.80} is not a valid name: {REF_FORM}")


def check_branch_name(name: str, field: str = "branch") -> None:
    if len(name) > MAX_REF_LENGTH or not all(map(_is_usable, name.split("/"))):
        raise InvalidInput(field, f"{name!r:.80} is not a valid name: between slashes {REF_FORM}")


def _is_usable(part: str) -> bool:
    is_formed = len(part) <= MAX_REF_LENGTH and REF_PART.fullmatch(part) is not None
    return is_formed and ".." not in part and not part.endswith(".lock")
