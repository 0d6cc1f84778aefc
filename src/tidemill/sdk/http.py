"""Requests to a Tidemill server, its refusals as exceptions, and its streams of events."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pyarrow as pa

from tidemill.sdk.data import stream_bytes
from tidemill.sdk.errors import ServerUnreachable, request_error
from tidemill.sdk.names import url_id

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
EVENT_STREAM: Final = "text/event-stream"
TIMEOUT: Final = httpx.Timeout(300.0, connect=5.0)
T = TypeVar("T")
Params = Mapping[str, str | int | float | None]
DEFAULT_KIND: Final = "message"
Token = str | Callable[[], str]
"""A bearer token, or a function that returns one that is valid now."""


class ServerClient:
    """One server's address with the caller's credential, an API key or a bearer token; thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        token: Token | None = None,
        ca_file: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.api_key = api_key
        self._token = token
        self._ca_file = ca_file
        # Name and digest of functions for columns that were there already, by table and column.
        self.refused_functions: dict[tuple[tuple[str, ...], str], tuple[str, str]] = {}
        headers = {"x-api-key": api_key} if api_key else {}
        # Proxies from the environment must not stand between a user and the server on their own machine.
        self._http = httpx.Client(
            timeout=TIMEOUT,
            headers=headers,
            auth=None if token is None else _BearerToken(token),
            verify=trusted_certificates(ca_file),
            trust_env=not _is_loopback(self.url),
            transport=transport,
        )

    def lance_properties(self) -> dict[str, str]:
        """What Lance's own client of this server is configured with."""
        properties = {"uri": self.url}
        if self.api_key is not None:
            properties["header.x-api-key"] = self.api_key
        if self._token is not None:
            properties["header.authorization"] = f"Bearer {_value(self._token)}"
        if self._ca_file is not None:
            properties["tls.ssl_ca_cert"] = str(self._ca_file)
        return properties

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Params | None = None) -> Any:
        return self._json("GET", path, params=_present(params))

    def post(
        self, path: str, body: Any = None, *, params: Params | None = None, idempotency_key: str | None = None
    ) -> Any:
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return self._json("POST", path, json=body or {}, params=_present(params), headers=headers)

    def put(self, path: str, body: Any) -> Any:
        return self._json("PUT", path, json=body)

    def delete(self, path: str) -> Any:
        return self._json("DELETE", path)

    def post_form(self, path: str, form: Mapping[str, str]) -> Any:
        return self._json("POST", path, data=dict(form))

    def post_envelope(self, path: str, envelope: bytes, *, params: Params | None = None) -> Any:
        """Sends a function in the form it has on the wire."""
        headers = {"Content-Type": "application/json"}
        return self._json("POST", path, content=envelope, params=_present(params), headers=headers)

    def post_arrow(self, path: str, data: pa.RecordBatchReader, *, params: Params | None = None) -> Any:
        """Sends rows as an Arrow stream, batch by batch."""
        return self._json(
            "POST",
            path,
            content=stream_bytes(data),
            params=_present(params),
            headers={"Content-Type": ARROW_STREAM},
        )

    def post_for_arrow(self, path: str, body: Any, *, params: Params | None = None) -> pa.Table:
        """Asks for rows; the answer is an Arrow IPC file."""
        response = self._send("POST", path, json=body, params=_present(params))
        with pa.ipc.open_file(pa.py_buffer(response.content)) as reader:
            return reader.read_all()

    def events(self, path: str, after: int = 0) -> Iterator[ServerEvent]:
        """The events of a stream behind a number, until the server closes it or the connection is lost."""
        headers = {"Accept": EVENT_STREAM, **({"Last-Event-ID": str(after)} if after else {})}
        try:
            with self._http.stream("GET", self.url + path, headers=headers) as response:
                if response.is_error:
                    response.read()
                    raise request_error(response.status_code, _body(response), response.text[:500])
                yield from read_events(response.iter_lines())
        except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError):
            # Whoever listens asks again where it stands; only a server that cannot be reached is a fault.
            return
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def object_path(self, kind: str, levels: Sequence[str], action: str) -> tuple[str, dict[str, str]]:
        """The path of an action on a namespace, table or view of the Lance protocol, and its query."""
        encoded, params = url_id(levels)
        return f"/v1/{kind}/{encoded}/{action}", params

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response = self._send(method, path, **options)
        return response.json() if response.content else {}

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, self.url + path, **options)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise request_error(response.status_code, _body(response), response.text[:500])
        return response

    def _unreachable(self, error: httpx.TransportError) -> ServerUnreachable:
        return ServerUnreachable(f"No response from {self.url}: {error}; is the server running?")


class _BearerToken(httpx.Auth):
    def __init__(self, token: Token) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {_value(self._token)}"
        yield request


def _value(token: Token) -> str:
    return token if isinstance(token, str) else token()


def trusted_certificates(ca_file: str | Path | None) -> ssl.SSLContext | bool:
    """Those of this file instead of the well-known ones; raises ValueError if it has none."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"ca_file {ca_file} has no certificates: {error}") from error


def pages(
    client: ServerClient, path: str, params: Params, *, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Every page of a listing."""
    token: str | None = None
    while True:
        page = client.get(path, {**params, "page_token": token, "limit": limit})
        yield page
        token = page.get("page_token")
        if not token:
            return


def from_answer(kind: type[T], body: Mapping[str, Any], **read: Any) -> T:
    """A result with what the answer has under the names of its fields; `read` has the others.

    Answers leave out what is null. Such a field gets its default, or None.
    """
    given = {}
    for field in fields(kind):  # type: ignore[arg-type]  # every kind is a dataclass
        value = body.get(field.name)
        if value is not None or field.default is MISSING:
            given[field.name] = value
    return kind(**{**given, **read})


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _present(params: Params | None) -> dict[str, str | int | float]:
    return {key: value for key, value in (params or {}).items() if value is not None}


def _is_loopback(url: str) -> bool:
    return httpx.URL(url).host in {"127.0.0.1", "::1", "localhost"}


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
