"""Routes, and the router that finds the one for a path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from tidemill.errors import InvalidInput, MethodNotAllowed, RouteNotFound, TidemillError
from tidemill.protocols.http.call import Call, Handler


class BodyKind(Enum):
    """The content of a request body. Each kind has its own size limit. IGNORED is read and discarded."""

    JSON = "json"
    ENVELOPE = "envelope"
    ARROW = "arrow"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: `pattern` has literal segments and `{parameters}` of one segment each.

    `is_quick`: usually done after a few rows of the database, so the handler runs on the event loop first. If
    it finds that it would block, it stops there and runs again from the start in a thread. It may write
    (`version/create` does), but every step of it must be repeatable: see decision 13.
    `is_waiting`: may wait for a job, so it runs in threads of its own and takes none from other requests.
    `is_public`: served to callers who have not authenticated.
    `is_reading`: changes nothing, though its method is not GET or HEAD. All others leave an audit row.
    """

    method: str
    pattern: str
    handler: Handler
    body: BodyKind = BodyKind.JSON
    is_waiting: bool = False
    is_quick: bool = False
    is_public: bool = False
    is_reading: bool = False

    @property
    def is_mutation(self) -> bool:
        return not self.is_reading and self.method not in ("GET", "HEAD")


def with_name_hints(route: Route) -> Route:
    """The route with refusals that say what a name stands for, or which names are near one not found."""

    def handler(call: Call) -> Response:
        try:
            return route.handler(call)
        except TidemillError as error:
            message = call.operations.name_hints.message(call.caller, error)
            if message is not None:
                error.args = (message,)
            raise

    return replace(route, handler=handler)


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
    """Splits a raw path and then decodes the segments, so that %2F stays inside a name.

    Ignores empty segments: clients use base URLs that end in a slash, and append slashes.
    The Lance client form-encodes paths, so a plus sign is a space.
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
    """Prefers literal segments to parameters, and backtracks if that finds no route."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def match(self, method: str, segments: tuple[str, ...]) -> Match:
        """Raises RouteNotFound, MethodNotAllowed."""
        allowed: set[str] = set()
        for node, values in _matching_nodes(self._root, segments, ()):
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
            raise ValueError(f"{route.method} {route.pattern} is defined twice")
        node.routes[route.method] = (route, tuple(names))


def _matching_nodes(
    node: _Node, segments: tuple[str, ...], values: tuple[str, ...]
) -> Iterable[tuple[_Node, tuple[str, ...]]]:
    if not segments:
        if node.routes:
            yield node, values
        return
    head, rest = segments[0], segments[1:]
    if head in node.literals:
        yield from _matching_nodes(node.literals[head], rest, values)
    if node.parameter is not None:
        yield from _matching_nodes(node.parameter, rest, (*values, head))
