"""Who asks, and what they may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    """What a grant on a namespace subtree allows."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    COMPUTE = "compute"
    FUNCTION = "function"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal on whose behalf an operation runs."""

    principal: str


LOCAL_CALLER: Final = Caller("local")
