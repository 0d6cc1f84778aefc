"""What the server and the worker process have in common: logs, and stopping with their parent.

Logs are structured and go to standard error: readable on a terminal, JSON lines elsewhere. A process whose
parent is gone learns it from its standard input, which is closed then.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from threading import Thread, Timer
from typing import Final

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger

MAX_EVENT_BYTES: Final = 16_000
MAX_TRACEBACK_BYTES: Final = 8_000
# Events with fewer characters are below the limit in any encoding.
SHORT_EVENT_CHARACTERS: Final = 2_000
MAX_KEYS: Final = 40
MAX_KEY: Final = 60
ALWAYS_KEPT: Final = frozenset({"event", "level", "timestamp", "exception", "request_id", "job"})
# JSON lines hold no larger integers.
MAX_INTEGER: Final = 2**63 - 1


def configure_logs(level: str) -> None:
    renderer: structlog.typing.Processor
    factory: Callable[..., WrappedLogger]
    if sys.stderr.isatty():
        renderer, factory = structlog.dev.ConsoleRenderer(), structlog.PrintLoggerFactory(sys.stderr)
    else:
        renderer = structlog.processors.JSONRenderer(serializer=orjson.dumps)
        factory = structlog.BytesLoggerFactory(sys.stderr.buffer)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _add_time,
            structlog.processors.format_exc_info,
            cut_long_values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def cut_long_values(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Keeps an event below 16 KB: fields can be of any length and number, and so can their names."""
    if sum(map(_length, event.values())) + sum(map(len, event)) <= SHORT_EVENT_CHARACTERS:
        return event
    if len(event) > MAX_KEYS:
        left_out = list(event)[MAX_KEYS - 1 :]
        # What says when and how bad stays, wherever it is.
        kept = {key: event.pop(key) for key in left_out if key in ALWAYS_KEPT}
        for key in set(left_out) - kept.keys():
            del event[key]
        event.update(kept, keys_left_out=len(left_out) - len(kept))
    share = (MAX_EVENT_BYTES - MAX_TRACEBACK_BYTES) // (len(event) + 1)
    for key in list(event):
        value = event.pop(key)
        if _length(value):
            limit = MAX_TRACEBACK_BYTES if key == "exception" else share - len(key[:MAX_KEY])
            value = _cut(_text(value), limit)
        event[key[:MAX_KEY]] = value
    return event


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= MAX_INTEGER):
        return 0
    # JSON has no larger integers: cutting makes a text of it.
    return SHORT_EVENT_CHARACTERS + 1 if isinstance(value, int) else len(_text(value))


def _text(value: object) -> str:
    """Python refuses to write integers of more than 4,300 digits as decimals."""
    return hex(value) if isinstance(value, int) else str(value)


def _cut(text: str, limit_bytes: int) -> str:
    """Keeps both ends of a text: a traceback starts with the request and ends with the error."""
    full_text = text.encode(errors="replace").decode()
    shortened, kept_characters = full_text, len(full_text)
    while kept_characters and len(orjson.dumps(shortened)) > limit_bytes:
        kept_characters = kept_characters * 3 // 4
        first, last = full_text[: kept_characters // 2], full_text[len(full_text) - kept_characters // 2 :]
        shortened = f"{first} … {len(full_text) - kept_characters} characters left out … {last}"
    return shortened


def _add_time(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    event["timestamp"] = f"{_formatted_second(seconds)}.{nanoseconds // 1000:06}Z"
    return event


@lru_cache(maxsize=1)
def _formatted_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


GRACE_SECONDS = 10.0


def stop_with_stdin(stop: Callable[[], None], wake: Callable[[], None] | None = None) -> None:
    """Calls `stop` when standard input closes, and exits if that takes too long.

    Until then, any input calls `wake`.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            if wake is not None:
                wake()
        # It was told to stop: with another code, its supervisor would replace it.
        last_resort = Timer(GRACE_SECONDS, os._exit, args=(0,))
        last_resort.daemon = True
        last_resort.start()
        stop()

    Thread(target=watch, name="stdin", daemon=True).start()
