"""Options of jobs and drops: error policies, manifests, the arguments of a method as a request's body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from tidemill.jobs.model.declarations import options_of
from tidemill.jobs.model.failures import NAMED_POLICIES, ErrorAction, ErrorPolicy
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.sdk.http import ServerClient

# What may be written instead of a policy.
PolicyName = Literal["fail", "retry", "skip"]
PATH = "/api/v1/manifests"
Policy = Literal["auto", "incremental", "full"]


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy for failing rows; made by `tidemill.fail`, `tidemill.retry` and `tidemill.skip`.

    Raises:
        ValueError: A limit is out of range.
    """

    policy: ErrorPolicy

    def __post_init__(self) -> None:
        if self.policy.attempts < 1:
            raise ValueError(f"attempts must be 1 or more, not {self.policy.attempts}")
        if self.policy.backoff_seconds < 0:
            raise ValueError(f"backoff must be 0 or more seconds, not {self.policy.backoff_seconds:g}")
        if self.policy.max_skipped is not None and self.policy.max_skipped < 0:
            raise ValueError(f"limit must be 0 or more rows, not {self.policy.max_skipped}")
        fraction = self.policy.max_skipped_fraction
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1, not {fraction:g}")

    def request(self) -> dict[str, Any]:
        """The form it has in a request."""
        return self.policy.to_json()


def fail() -> OnError:
    """Fails the job on the first row on which the function raises.

    >>> import tidemill
    >>> tidemill.fail().request()["action"]
    'fail'
    """
    return OnError(ErrorPolicy())


def retry(attempts: int = 3, backoff: float = 1.0, on: Sequence[type[BaseException] | str] = ()) -> OnError:
    """Retries a failing row; the job fails when every attempt has failed.

    Args:
        attempts: The maximum number of attempts per row, including the first.
        backoff: Seconds before the second attempt; doubled before each one after that.
        on: The exceptions worth another attempt, as classes or by name; none means any.

    >>> import tidemill
    >>> tidemill.retry(attempts=5, on=(ConnectionError, "TimeoutError")).request()["retry_on"]
    ['ConnectionError', 'TimeoutError']
    """
    if isinstance(on, str | type):
        raise TypeError(f"on= is a sequence of exceptions; write on=({_name(on)},)")
    names = tuple(_name(kind) for kind in on)
    return OnError(ErrorPolicy(attempts=attempts, backoff_seconds=backoff, retry_on=names))


def skip(limit: int | None = None, fraction: float | None = None, retry: OnError | None = None) -> OnError:
    """A failing row stays null and is listed in `Table.errors`; the job continues.

    Args:
        limit: The job fails when more rows than this were skipped.
        fraction: The same, as a fraction of the rows that the job computes, between 0 and 1.
        retry: How a row is retried before it is skipped; made by `tidemill.retry`.

    >>> import tidemill
    >>> policy = tidemill.skip(limit=100, retry=tidemill.retry(attempts=2)).request()
    >>> policy["action"], policy["attempts"], policy["max_skipped"]
    ('skip', 2, 100)
    """
    if retry is not None and (not isinstance(retry, OnError) or retry.policy.action is ErrorAction.SKIP):
        raise TypeError(f"retry= is made by tidemill.retry(...), not {retry!r:.80}")
    tried = (retry or fail()).policy
    return OnError(
        ErrorPolicy(ErrorAction.SKIP, tried.attempts, tried.backoff_seconds, tried.retry_on, limit, fraction)
    )


def on_error_request(given: Any) -> str | dict[str, Any]:
    """A policy or its name in the form it has in a request."""
    if isinstance(given, OnError):
        return given.request()
    if isinstance(given, str) and given in NAMED_POLICIES:
        return given
    raise TypeError(
        f"on_error= is tidemill.fail(), tidemill.retry(...), tidemill.skip(...) or one of "
        f"{', '.join(map(repr, NAMED_POLICIES))}, not {given!r:.80}"
    )


def _name(kind: type[BaseException] | str) -> str:
    if isinstance(kind, str) and kind:
        return kind
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind.__name__
    raise TypeError(f"{kind!r:.80} is neither an exception nor the name of one")


@dataclass(frozen=True)
class Manifest:
    """Packages to install and environment variables to set, for one job.

    Args:
        pip: Packages in pip's notation.
        env: Variables and their values.

    >>> import tidemill
    >>> tidemill.Manifest(pip=["pillow==11.0"], env={"MODEL": "small"}).request()
    {'pip': ['pillow==11.0'], 'env_vars': {'MODEL': 'small'}}
    """

    pip: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.pip, str):
            raise TypeError(f"pip= is a list of packages; write pip=[{self.pip!r}]")
        if not all(isinstance(package, str) for package in self.pip):
            raise TypeError(f"pip= is a list of packages, each a string: {self.pip!r:.100}")
        for name, value in self.env.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"env= has strings for names and values; {name!r:.60} has {value!r:.60}")

    def request(self) -> dict[str, Any]:
        """The form it has in a request."""
        return {"pip": list(self.pip), "env_vars": dict(self.env)}


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """A stored manifest; of its variables only the names are shown, because values may be secrets."""

    name: str
    pip: tuple[str, ...]
    env: tuple[str, ...]


def manifest_request(given: Any) -> str:
    """The name of a stored manifest, or the JSON text of one."""
    if isinstance(given, Manifest):
        return json.dumps(given.request())
    if isinstance(given, str) and given:
        return given
    raise TypeError(
        f"manifest= is the name of a stored manifest, a tidemill.Manifest or JSON text, not {given!r:.80}"
    )


def put_manifest(client: ServerClient, name: str, manifest: Manifest) -> None:
    client.put(_path(name), manifest.request())


def list_manifests(client: ServerClient) -> list[ManifestInfo]:
    found = client.get(PATH).get("manifests", [])
    return [ManifestInfo(item["name"], tuple(item["pip"]), tuple(item["env_vars"])) for item in found]


def drop_manifest(client: ServerClient, name: str) -> None:
    client.delete(_path(name))


def _path(name: str) -> str:
    if not name:
        raise ValueError("a manifest needs a name")
    return f"{PATH}/{quote(name, safe='')}"


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
    """The options of a request among the arguments of a method: those that are set.

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


def dependant_flags(*, cascade: bool, force: bool) -> dict[str, str]:
    """Query parameters that say what becomes of those who depend on what is dropped."""
    return {name: "true" for name, given in (("cascade", cascade), ("force", force)) if given}
