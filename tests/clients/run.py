"""Runs foreign clients against a server of this folder, compares and records what they do: `make clients`.

Exit code 1: an operation fails that is not a known fault, a known fault is gone, or a scenario did not run to
its end. Clients that cannot be installed count only with `--strict`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.clients import matrix
from tests.clients.client import CACHE, ROOT, Client, ClientMissing
from tests.clients.proxy import recording_proxy
from tests.clients.recording import Recorder, root_below
from tests.clients.replay import CLIENT_ID, drop_unread_files, mark_what_cannot_be_replayed, not_replayed
from tests.conftest import start_server
from tests.specification.drift import new_in, newest_surface
from tidemill.server.processes import configure_logs

FOLDER: Final = Path(__file__).parent
WAREHOUSE: Final = "tidemill"


def all_clients() -> dict[str, Client]:
    """Those of every module with a `CLIENT` or several `CLIENTS`."""
    found: list[Client] = []
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem in {"run", "client"}:
            continue
        module = importlib.import_module(f"tests.clients.{path.stem}")
        found += [*getattr(module, "CLIENTS", ()), *([module.CLIENT] if hasattr(module, "CLIENT") else ())]
    return {client.name: client for client in sorted(found, key=lambda one: one.name)}


def chosen(names: Sequence[str]) -> list[Client]:
    clients = all_clients()
    if unknown := sorted(set(names) - clients.keys()):
        sys.exit(f"unknown clients: {', '.join(unknown)}; there are {', '.join(clients)}")
    return [client for name, client in clients.items() if not names or name in names]


def run_client(client: Client, expected: Sequence[str], *, keep_recording: bool) -> matrix.Outcome:
    folder = CACHE / client.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        command = client.prepare(folder)
    except ClientMissing as error:
        return matrix.Outcome(client, not_run=str(error))
    secret = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(prefix="tidemill-clients-") as temporary:
        root = root_below(Path(temporary))
        options = () if client.needs_worker else ("--no-worker",)
        clients = json.dumps({CLIENT_ID: {"secret": secret}})
        server = start_server(root, *options, **client.server_settings, TIDEMILL_CLIENTS=clients)
        recorder = Recorder(root, CLIENT_ID, secret)
        try:
            with recording_proxy(server.url, recorder) as url:
                output, ended = _run_scenario(client, command, _environment(url, secret))
        finally:
            server.stop()
        outcome = matrix.judged(client, output, ended, expected)
        if keep_recording and not outcome.problems and client.replayed_by is None:
            mark_what_cannot_be_replayed(recorder.lines)
            drop_unread_files(recorder.lines)
            outcome.requests, outcome.not_replayed = len(recorder.lines), not_replayed(recorder.lines)
            recorder.write(matrix.recording_of(client.name))
    return outcome


def _environment(url: str, secret: str) -> dict[str, str]:
    # Nothing of ours reaches the scenario: neither this environment's Python path nor our settings.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTHON"))}
    return kept | {
        "TIDEMILL_URL": url,
        "TIDEMILL_ICEBERG_URL": f"{url}/iceberg",
        "TIDEMILL_WAREHOUSE": WAREHOUSE,
        "TIDEMILL_CREDENTIAL": f"{CLIENT_ID}:{secret}",
    }


def _run_scenario(
    client: Client, command: Sequence[str], environment: dict[str, str]
) -> tuple[str, str | None]:
    """What it printed, and how it ended if that was not well. What it logged is in the cache folder."""
    log = CACHE / f"{client.name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        ended = None
        try:
            output, _ = process.communicate(timeout=client.timeout_seconds)
            if process.returncode != 0:
                ended = f"the scenario ended with code {process.returncode}"
        except subprocess.TimeoutExpired:
            _kill_group(process)
            output, _ = process.communicate()
            ended = f"the scenario did not end within {client.timeout_seconds} seconds"
        finally:
            # Whatever it started ends with it.
            _kill_group(process)
    text = output.decode(errors="replace")
    with log.open("a") as errors_and_output:
        errors_and_output.write(text)
    return text, None if ended is None else f"{ended}; see {log}: {_last_words(log)}"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " / ".join(line for line in lines if not line.startswith("{"))[-matrix.LONGEST_DETAIL :]


def shown(outcome: matrix.Outcome, seconds: float) -> Iterator[str]:
    title = f"{outcome.client.name} {outcome.client.version}"
    if outcome.not_run is not None:
        yield f"{title}: not run: {outcome.not_run}"
        return
    yield f"{title} ({seconds:.0f} s)"
    for operation, verdict in outcome.operations.items():
        match verdict:
            case str():
                yield f"  pass   {operation}"
            case {"new": detail}:
                yield f"  NEW    {operation}: {detail}"
            case _:
                yield f"  known  {operation}: {verdict['whose']}, {verdict['upstream']}"
    for request in outcome.not_replayed:
        yield f"  not replayed: {request}"
    for problem in outcome.problems:
        yield f"  FAILED {problem}"


def newest_specification() -> Iterator[str]:
    """What the newest published client of the Lance Namespace has that is not served."""
    try:
        client = newest_surface()
    except ClientMissing as error:
        print(f"newest Lance Namespace client: not compared: {error}")
        return
    news = new_in(client)
    print(f"newest Lance Namespace client, {client['version']}: {len(news)} operations or fields are new")
    yield from news


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run", description=__doc__)
    parser.add_argument("clients", nargs="*", help="only these clients")
    parser.add_argument("--strict", action="store_true", help="fail also where a client cannot be installed")
    parser.add_argument("--no-write", action="store_true", help="leave the matrix, the page and recordings")
    arguments = parser.parse_args()
    configure_logs("ERROR")
    has_failed = False
    for news in () if arguments.clients else newest_specification():
        has_failed = True
        print(f"  NEW    {news}")
    for client in chosen(arguments.clients):
        began_at = time.monotonic()
        kept = matrix.read_matrix().get(client.name, {}).get("operations", {})
        expected = [name for name, verdict in kept.items() if "new" not in verdict]
        outcome = run_client(client, expected, keep_recording=not arguments.no_write)
        print("\n".join(shown(outcome, time.monotonic() - began_at)), flush=True)
        has_failed |= bool(outcome.problems) or (arguments.strict and outcome.not_run is not None)
        if not arguments.no_write:
            matrix.write(matrix.merged(matrix.read_matrix(), [outcome]))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
