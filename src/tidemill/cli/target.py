"""Which server a command talks to: an address, or the server that runs under a root folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill.sdk.connection import DEFAULT_ROOT, connect
from tidemill.sdk.embedded import find_server
from tidemill.sdk.errors import ServerUnreachable
from tidemill.sdk.lake import Lake

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="TIDEMILL_URL", help="Address of the server; wins over --root."),
]
RootOption = Annotated[
    Path, typer.Option("--root", envvar="TIDEMILL_ROOT", help="Folder of a server on this machine.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", envvar="TIDEMILL_API_KEY", help="Key for a server that asks for one."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
ROOT = Path(DEFAULT_ROOT)


def open_lake(url: str | None, root: Path, api_key: str | None) -> Lake:
    """The lake at the address, or of the server that runs under the root; starts none."""
    if url:
        return connect(url, api_key=api_key)
    found = find_server(root.absolute())
    if found is None:
        raise ServerUnreachable(
            f"No server runs under {root}; start one with 'tidemill serve --root {root}', or give --url"
        )
    return connect(found, api_key=api_key)
