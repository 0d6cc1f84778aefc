"""`tidemill serve` and `tidemill work`: the long-running processes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

RootSetting = Annotated[Path | None, typer.Option("--root", help="Folder of the catalog and the data.")]

StdinSetting = Annotated[bool, typer.Option("--exit-with-stdin", help="Stop when standard input is closed.")]


def serve(
    *,
    root: RootSetting = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 picks a free one.")] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Number of processes that serve requests.")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Do not start workers.")] = False,
    exit_with_stdin: StdinSetting = False,
) -> None:
    """Run the server and a worker for each cluster."""
    # A process that shares the socket of another server is restarted by that one. Any other goes on in a
    # fork, which has to be made before Lance is imported.
    is_sibling = "TIDEMILL_LISTENER" in os.environ
    supervision = None if is_sibling else _server_part("supervisor").run_supervised()
    settings = _server_part("settings").load_settings(
        root=root,
        host=host,
        port=port,
        processes=processes,
        with_worker=False if no_worker else None,
        exit_with_stdin=exit_with_stdin or None,
    )
    _server_part("serve").serve(settings, supervision)


def work(
    *,
    root: RootSetting = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Cluster whose jobs it runs.")
    ] = None,
    exit_with_stdin: StdinSetting = False,
) -> None:
    """Run a worker without a server."""
    settings = _server_part("settings").load_settings(
        root=root, exit_with_stdin=exit_with_stdin or None, cluster=cluster
    )
    _server_part("worker").work(settings)


def _server_part(name: str) -> Any:
    """The server takes seconds to import; the other commands do without it."""
    # Lance warns at every commit of a backfill that its operation is young; it reads this when imported.
    os.environ.setdefault("LANCE_LOG", "error")
    return importlib.import_module(f"tidemill.server.{name}")
