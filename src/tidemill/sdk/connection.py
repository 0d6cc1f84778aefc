"""`connect`: the way to a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidemill.sdk.embedded import find_server, start_server
from tidemill.sdk.errors import ServerNotStarted
from tidemill.sdk.http import ServerClient
from tidemill.sdk.lake import Lake

DEFAULT_ROOT: Final = "tidemill-data"


def connect(target: str | Path | None = None, *, api_key: str | None = None) -> Lake:
    """Connects to a lake.

    Args:
        target: The address of a server (`"http://…"`), or the root folder of one on this machine, by default
            `./tidemill-data`. The server that runs under that folder is used; if there is none, one is
            started with a worker and ends when the lake is closed or this process ends.
        api_key: Sent with every request to a server that asks for one.

    Raises:
        ServerUnreachable: Nothing answers at the address.
        ServerNotStarted: The embedded server did not come up; the message has the end of its log.

    >>> import tidemill
    >>> with tidemill.connect(lake.url) as same:
    ...     same.health()["status"]
    'ok'
    """
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        client = ServerClient(target, api_key=api_key)
        client.get("/api/v1/health")
        return Lake(client)
    return _embedded(Path(target or DEFAULT_ROOT).absolute(), api_key)


def _embedded(root: Path, api_key: str | None) -> Lake:
    url = find_server(root)
    if url is not None:
        return Lake(ServerClient(url, api_key=api_key))
    try:
        server = start_server(root)
    except ServerNotStarted:
        # Another process may have started one at the same moment.
        url = find_server(root)
        if url is None:
            raise
        return Lake(ServerClient(url, api_key=api_key))
    return Lake(ServerClient(server.url, api_key=api_key), server)
