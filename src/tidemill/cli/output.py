"""What commands print: tables and sentences for people, JSON for machines."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rich.console import Console


def console() -> Console:
    return Console(highlight=False)


def print_json(value: Any) -> None:
    console().print(json.dumps(value, indent=2, default=str), markup=False, soft_wrap=True)


def print_line(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)


def local_time(at: datetime | None) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "-"
