"""Routes as data, and the search for the one that a raw path means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote_to_bytes

from tidemill.errors import InvalidInput, MethodNotAllowed, RouteNotFound
from tidemill.protocols.http.call import Handler


class BodyKind(Enum):
    """What a route's body carries; each kind has its own size limit. IGNORED is read and thrown away."""

    JSON = "json"
    ENVELOPE = "envelope"
    ARROW = "arrow"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: `pattern` has literal segments and `{parameters}` of one segment each.

    `is_quick`: usually done after a few rows of the database, so the handler runs on the event loop first.
    If it finds that it would block, it stops there and runs again from the start in a thread. It may write
    (`version/create` does), but every step of it has to be repeatable: see decision 13.
    `is_waiting`: may wait for a job, so it runs in threads of its own and takes none from other requests.
    `is_public`: served to callers who have not authenticated.
    """

    method: str
    pattern: str
    handler: Handler
    body: BodyKind = BodyKind.JSON
    is_waiting: bool = False
    is_quick: bool = False
    is_public: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    route: Route
    parameters: Mapping[str, str]


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


def path_segments(raw_path: bytes) -> tuple[str, ...]:
    """The decoded segments of a raw path: split first, decoded after, so that %2F stays inside a name.

    Clients build on bases that end in a slash and add slashes at the end; both are ignored.
    The Lance client form-encodes paths: a raw plus is a space.
    """
    if b"%" in raw_path or b"+" in raw_path or not raw_path.isascii():
        return tuple(_decoded(segment) for segment in raw_path.split(b"/") if segment)
    return tuple(filter(None, raw_path.decode().split("/")))


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("path", f"is not percent-encoded UTF-8 ({error.reason})") from error


class Router:
    """Prefers literal segments to parameters and goes back when that leads nowhere."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def match(self, method: str, segments: tuple[str, ...]) -> Match:
        """Raises RouteNotFound, MethodNotAllowed."""
        allowed: set[str] = set()
        for node, values in _leaves(self._root, segments, ()):
            if method in node.routes:
                route, names = node.routes[method]
                return Match(route, dict(zip(names, values, strict=True)))
            allowed.update(node.routes)
        path = "/" + "/".join(segments)
        if allowed:
            raise MethodNotAllowed(method, path, tuple(sorted(allowed)))
        raise RouteNotFound(method, path)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in filter(None, route.pattern.split("/")):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.pattern} is there twice")
        node.routes[route.method] = (route, tuple(names))


def _leaves(
    node: _Node, segments: tuple[str, ...], values: tuple[str, ...]
) -> Iterable[tuple[_Node, tuple[str, ...]]]:
    if not segments:
        if node.routes:
            yield node, values
        return
    head, rest = segments[0], segments[1:]
    if head in node.literals:
        yield from _leaves(node.literals[head], rest, values)
    if node.parameter is not None:
        yield from _leaves(node.parameter, rest, (*values, head))
