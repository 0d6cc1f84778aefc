"""What a body says about rows on which a function fails."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidemill.errors import InvalidInput
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorAction, ErrorPolicy
from tidemill.protocols.http.fields import Fields

MAX_ATTEMPTS: Final = 100
MAX_BACKOFF_SECONDS: Final = 3600
EXCEPTION_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
RETRY: Final = ErrorPolicy(attempts=3)
BY_NAME: Final[Mapping[str, ErrorPolicy]] = {
    "fail": FAIL_AT_ONCE,
    "retry": RETRY,
    "skip": ErrorPolicy(ErrorAction.SKIP),
}
KEYS: Final = frozenset(
    {"action", "attempts", "backoff_seconds", "retry_on", "max_skipped", "max_skipped_fraction"}
)


def error_policy(fields: Fields, key: str) -> ErrorPolicy:
    """A name, or an object with all there is to say, which may be JSON in a text."""
    raw, name = _parsed(fields.raw(key)), fields.name_of(key)
    if raw is None:
        return FAIL_AT_ONCE
    if isinstance(raw, str):
        if raw not in BY_NAME:
            raise InvalidInput(name, f"{raw!r:.60} is none of {', '.join(BY_NAME)}")
        return BY_NAME[raw]
    if not isinstance(raw, dict):
        raise InvalidInput(name, f"has to be one of {', '.join(BY_NAME)}, or an object with an action")
    return _policy(Fields(raw, name))


def _parsed(raw: Any) -> Any:
    if not isinstance(raw, str) or not raw.lstrip().startswith("{"):
        return raw
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw


def _policy(said: Fields) -> ErrorPolicy:
    said.refuse_unknown(KEYS)
    action = said.choice("action", ErrorAction.FAIL)
    attempts = said.integer("attempts", 1) or 1
    if attempts > MAX_ATTEMPTS:
        raise InvalidInput(said.name_of("attempts"), f"has to be at most {MAX_ATTEMPTS}")
    if action is ErrorAction.FAIL and (said.has("max_skipped") or said.has("max_skipped_fraction")):
        raise InvalidInput(said.name_of("action"), "has to be skip where a limit of skipped rows is given")
    fraction = said.number("max_skipped_fraction", 0)
    if fraction is not None and fraction > 1:
        raise InvalidInput(said.name_of("max_skipped_fraction"), f"has to be between 0 and 1, not {fraction}")
    backoff = said.number("backoff_seconds", 0)
    if backoff is not None and backoff > MAX_BACKOFF_SECONDS:
        raise InvalidInput(said.name_of("backoff_seconds"), f"has to be at most {MAX_BACKOFF_SECONDS}")
    return ErrorPolicy(
        action=action,
        attempts=attempts,
        backoff_seconds=FAIL_AT_ONCE.backoff_seconds if backoff is None else backoff,
        retry_on=_exceptions(said),
        max_skipped=said.integer("max_skipped", 0),
        max_skipped_fraction=fraction,
    )


def _exceptions(said: Fields) -> tuple[str, ...]:
    names = said.texts("retry_on") or ()
    for name in names:
        if not EXCEPTION_NAME.fullmatch(name):
            problem = f"{name!r:.60} is not the name of an exception, such as ConnectionError"
            raise InvalidInput(said.name_of("retry_on"), problem)
    return names
