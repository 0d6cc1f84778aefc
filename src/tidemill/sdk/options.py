"""The arguments of methods that start jobs, as the body of a request; values are checked on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from tidemill.jobs.model.options import options_of
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.sdk.environments import manifest_request
from tidemill.sdk.policies import on_error_request

Policy = Literal["auto", "incremental", "full"]


def policy_request(given: Any) -> str:
    """How a view is refreshed, by its name."""
    try:
        return RefreshPolicy(given).value
    except ValueError as error:
        raise ValueError(
            f"policy= is one of {', '.join(map(repr, map(str, RefreshPolicy)))}, not {given!r:.60}"
        ) from error


# Those that have a form of their own on the wire.
RENDERED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "on_error": on_error_request,
    "manifest": manifest_request,
    "policy": policy_request,
}


def request_body(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a request among the arguments of a method: those that say something.

    Methods hand over their `locals()`, so that an option is written in their signature and nowhere else.
    """
    body = {}
    for option in options_of(kind):
        if given.get(option.name) is not None:
            body[option.name] = RENDERED.get(option.name, _as_it_is)(given[option.name])
        if option.shorthand is not None and given.get(option.shorthand.name):
            body[option.shorthand.name] = True
    return body


def _as_it_is(given: Any) -> Any:
    return given
