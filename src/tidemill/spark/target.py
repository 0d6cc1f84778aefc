"""Where Spark runs; a value that can be had without starting or importing Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SparkTarget:
    """Where Spark runs and with what configuration."""

    master: str
    scratch: Path
    config: Mapping[str, str] = field(default_factory=dict)
