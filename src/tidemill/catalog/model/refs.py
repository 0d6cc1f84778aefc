"""Names for points in a table's history: tags stand still, branches grow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput

MAX_REF_LENGTH: Final = 200
# Lance takes letters of any script here and then cannot list them any more.
REF_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
REF_FORM: Final = "it has to be made of ASCII letters, digits, '.', '_' and '-', and not to begin with '.'"


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one version of one branch."""

    name: str
    version: int
    manifest_size: int
    branch: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of versions that began as a version of another one."""

    name: str
    parent_branch: str
    parent_version: int
    created_at: datetime
    manifest_size: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def check_tag_name(name: str) -> None:
    if not _is_usable(name):
        raise InvalidInput("tag", f"{name!r:.80} is not a usable name: {REF_FORM}")


def check_branch_name(name: str, field: str = "branch") -> None:
    if len(name) > MAX_REF_LENGTH or not all(map(_is_usable, name.split("/"))):
        raise InvalidInput(field, f"{name!r:.80} is not a usable name: between slashes {REF_FORM}")


def _is_usable(part: str) -> bool:
    is_formed = len(part) <= MAX_REF_LENGTH and REF_PART.fullmatch(part) is not None
    return is_formed and ".." not in part and not part.endswith(".lock")
