"""Structured logs on standard error: for people on a terminal, as JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import lru_cache

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger


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
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def _add_time(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    event["timestamp"] = f"{_second(seconds)}.{nanoseconds // 1000:06}Z"
    return event


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
