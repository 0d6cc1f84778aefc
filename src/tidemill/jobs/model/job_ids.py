"""Job ids: UUIDs of version 7, so that they sort by the time they were made."""

from __future__ import annotations

import secrets
import time
from uuid import UUID


def new_job_id() -> str:
    millis = time.time_ns() // 1_000_000
    value = (millis & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=value))
