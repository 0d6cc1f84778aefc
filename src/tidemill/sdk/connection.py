"""`connect`: the way to a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidemill.sdk.embedded import find_server, start_server
from tidemill.sdk.errors import ServerNotStarted
from tidemill.sdk.http import ServerClient
from tidemill.sdk.lake import Lake

DEFAULT_ROOT: Final = "tidemill-data"


def connect(target: str | Path | None = None, *, credential: str | None = None) -> Lake:
    """Connects to a lake.

    Args:
        target: The address of a server (`"http://…"`), or the root folder of one on this machine, by default
            `./tidemill-data`. The server that runs under that folder is used; if there is none, one is
            started with a worker and ends when the lake is closed or this process ends.
        credential: `"<client id>:<secret>"` of one of the server's clients, sent with every request. A server
            without clients does not look at it.

    Raises:
        ValueError: The credential has not that form.
        ServerUnreachable: Nothing answers at the address.
        ServerNotStarted: The embedded server did not come up; the message has the end of its log.

    Whether the server knows the credential shows with the first request: `Unauthenticated` if it does not,
    `Forbidden` if the client's grants do not allow what was asked.

    >>> import tidemill
    >>> with tidemill.connect(lake.url) as same:
    ...     same.health()["status"]
    'ok'
    """
    _check_credential(credential)
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        client = ServerClient(target, api_key=credential)
        client.get("/api/v1/health")
        return Lake(client)
    return _embedded(Path(target or DEFAULT_ROOT).absolute(), credential)


def _embedded(root: Path, credential: str | None) -> Lake:
    url = find_server(root)
    if url is not None:
        return Lake(ServerClient(url, api_key=credential))
    try:
        server = start_server(root)
    except ServerNotStarted:
        # Another process may have started one at the same moment.
        url = find_server(root)
        if url is None:
            raise
        return Lake(ServerClient(url, api_key=credential))
    return Lake(ServerClient(server.url, api_key=credential), server)


def _check_credential(credential: str | None) -> None:
    client_id, _, secret = (credential or "").partition(":")
    if credential is not None and not (client_id and secret):
        raise ValueError('credential must be "<client id>:<secret>"')
