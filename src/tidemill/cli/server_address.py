"""Which server a command talks to: an address, or the server that runs under a root folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tidemill.sdk.connection import DEFAULT_ROOT, connect, find_server
from tidemill.sdk.errors import ServerUnreachable
from tidemill.sdk.lake import Lake

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="TIDEMILL_URL", help="Address of the server; takes precedence over --root."),
]
RootOption = Annotated[
    Path, typer.Option("--root", envvar="TIDEMILL_ROOT", help="Folder of a server on this machine.")
]
CredentialOption = Annotated[
    str | None,
    typer.Option(
        "--credential",
        envvar="TIDEMILL_CREDENTIAL",
        metavar="ID:SECRET",
        help="Credential of a client; other users can see command lines, so prefer the environment.",
    ),
]
ROOT = Path(DEFAULT_ROOT)


@dataclass(frozen=True, slots=True)
class Target:
    """The options that choose the server."""

    url: UrlOption = None
    root: RootOption = ROOT
    credential: CredentialOption = field(default=None, repr=False)

    def open(self) -> Lake:
        """The lake at the address, or of the server that runs under the root; starts none."""
        return connect(self.url or self._found(), credential=self.credential)

    def _found(self) -> str:
        found = find_server(self.root.absolute())
        if found is None:
            raise ServerUnreachable(
                f"No server runs under {self.root}; start one with 'tidemill serve --root {self.root}', "
                "or give --url"
            )
        return found
