"""How large a storm is, which kinds of clients take part and how often, and where that can be changed."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

CLIENTS: Final = 16


class Kind(Enum):
    """What a client may do next."""

    COMMIT = "commit a manifest through the catalog"
    PUT = "put a manifest by location"
    READ = "describe a version and read its manifest"
    BATCH = "commit versions of several tables as one"
    APPEND = "append a row with pylance through the catalog"
    APPEND_BY_LOCATION = "append a row with pylance by location"
    INSERT = "insert a row with a request"
    REFS = "create, use and delete a tag or a branch"
    READ_ROWS = "count, list and describe"
    CLEAN_UP = "delete old versions by location or through the catalog"


# Commits by hand are cheap and where the races are; the others make sure that all kinds meet.
WEIGHTS: Final[Mapping[Kind, int]] = {
    Kind.COMMIT: 60,
    Kind.PUT: 8,
    Kind.READ: 10,
    Kind.BATCH: 6,
    Kind.APPEND: 3,
    Kind.APPEND_BY_LOCATION: 3,
    Kind.INSERT: 3,
    Kind.REFS: 1,
    Kind.READ_ROWS: 4,
    Kind.CLEAN_UP: 2,
}


@dataclass(frozen=True)
class Faults:
    """How often servers are killed or stopped."""

    least: int
    pause_seconds: tuple[float, float]
    # Without this a short storm would mostly wait for servers to start.
    most: float = math.inf
    stop_seconds: tuple[float, float] = (0.2, 3.0)


@dataclass(frozen=True)
class Plan:
    """A storm ends when there are so many versions and it has seen its faults, or when the time is up."""

    versions: int
    seconds: float
    seed: int
    faults: Faults
    # A storm that runs out of time before it has its versions has failed.
    must_be_complete: bool = False
    clients: int = CLIENTS
    weights: Mapping[Kind, int] = field(default_factory=lambda: WEIGHTS)


SMALL: Final = Plan(
    versions=300, seconds=15, seed=0, faults=Faults(least=2, most=2, pause_seconds=(0.3, 1.0))
)
FULL: Final = Plan(
    versions=50_000,
    seconds=3000,
    seed=0,
    faults=Faults(least=20, pause_seconds=(3.0, 15.0)),
    must_be_complete=True,
)


def configured(plan: Plan) -> Plan:
    """The plan as the environment changes it, with a new seed unless one is given."""
    seed = os.environ.get("TIDEMILL_STORM_SEED")
    return replace(
        plan,
        versions=int(os.environ.get("TIDEMILL_STORM_VERSIONS", plan.versions)),
        seconds=float(os.environ.get("TIDEMILL_STORM_SECONDS", plan.seconds)),
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else int(seed),
    )
