"""Server-sent events, taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_KIND: Final = "message"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream: its kind and the JSON it carries."""

    kind: str
    data: Any


def read_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events in the lines of a `text/event-stream`; an event that is cut off is left out."""
    kind, data = DEFAULT_KIND, list[str]()
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(kind, json.loads("\n".join(data)))
            kind, data = DEFAULT_KIND, []
            continue
        # A line that starts with a colon is a comment, sent to keep the connection open.
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
