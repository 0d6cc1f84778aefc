"""Client × operation → verdict: how a run is judged, kept in `tests/data/clients/matrix.json` and shown.

`docs/clients.md` is written from the JSON alone, so the page can be checked without running a client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.clients.client import ROOT, Client, KnownFault

DATA: Final = ROOT / "tests" / "data" / "clients"
MATRIX: Final = DATA / "matrix.json"
PAGE: Final = ROOT / "docs" / "clients.md"
PASS: Final = "pass"
LONGEST_DETAIL: Final = 600
PROTOCOLS: Final = {"lance": "Lance Namespace", "iceberg": "Iceberg REST"}
INTRODUCTION: Final = """# Clients

Clients of other projects, run as their own documentation says against a real server with authentication on.
`make clients` installs each in an environment of its own, runs its scenario through a proxy that records the
requests, compares the results with those below and writes this page. It fails on anything new: an operation
that fails, or a known fault that is gone. `make clients CLIENTS="pyiceberg polars"` runs only these two, and
`CLIENTS=--strict` fails also where a client cannot be installed. Environments and logs are in
`.cache/clients`, the scenarios in `tests/clients`.

The recorded requests are in `tests/data/clients`. `make test` replays them, without the clients, and checks
the status and the form of each answer.
"""

Verdict = str | dict[str, str]


@dataclass
class Outcome:
    """What one run of a client came to."""

    client: Client
    operations: dict[str, Verdict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    not_run: str | None = None
    # Of the recording, if one was made.
    requests: int | None = None
    not_replayed: list[str] = field(default_factory=list)


def reported(output: str) -> dict[str, str | None]:
    """The operations of a scenario with None, or with what the client said when it failed."""
    found: dict[str, str | None] = {}
    for line in output.splitlines():
        try:
            said = json.loads(line) if line.startswith("{") else None
        except ValueError:
            said = None
        if not isinstance(said, dict) or "operation" not in said:
            continue
        name, has_passed = str(said["operation"]), said.get("outcome") == PASS
        detail = str(said.get("detail") or "failed without a word")[:LONGEST_DETAIL]
        found[name] = found.get(name) if has_passed else detail
    return found


def judged(client: Client, output: str, ended: str | None, expected: Iterable[str]) -> Outcome:
    """`ended` says how the scenario ended, unless well; `expected` are the operations of earlier runs."""
    outcome = Outcome(client)
    found = reported(output)
    known = {fault.operation: fault for fault in client.known_faults}
    for name, detail in found.items():
        fault = known.get(name)
        outcome.operations[name] = _verdict(detail, fault)
        if detail is not None and fault is None:
            outcome.problems.append(f"{name}: {detail}")
        if detail is None and fault is not None:
            outcome.problems.append(f"{name}: passes now, but is listed as a fault of {fault.whose}")
    if ended is not None:
        outcome.problems.append(ended)
    if not found:
        outcome.problems.append("the scenario reported no operation")
    # An operation that was renamed or removed on purpose is taken out of matrix.json by hand.
    untried = [name for name in {**dict.fromkeys(expected), **known} if name not in found]
    outcome.problems += [f"{name}: was not tried" for name in untried]
    return outcome


def _verdict(detail: str | None, fault: KnownFault | None) -> Verdict:
    if detail is None:
        return PASS
    if fault is None:
        return {"new": detail}
    return {"whose": fault.whose, "why": fault.why, "upstream": fault.upstream}


def read_matrix() -> dict[str, Any]:
    matrix: dict[str, Any] = json.loads(MATRIX.read_text()) if MATRIX.exists() else {}
    return matrix


def merged(matrix: Mapping[str, Any], outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """A client that could not be run, or said nothing, keeps what was found where it could."""
    rows = dict(matrix)
    for outcome in outcomes:
        client = outcome.client
        row = {"version": client.version, "protocol": client.protocol}
        if client.replayed_by is not None:
            row["replayed_by"] = client.replayed_by
        if outcome.operations:
            rows[client.name] = {**row, **_recorded(outcome, rows), "operations": outcome.operations}
        elif outcome.not_run is not None and "operations" not in rows.get(client.name, {}):
            rows[client.name] = {**row, "not_run": outcome.not_run}
    return dict(sorted(rows.items()))


def _recorded(outcome: Outcome, rows: Mapping[str, Any]) -> dict[str, Any]:
    """A run with a problem leaves the recording of an earlier one."""
    if outcome.requests is not None:
        return {"requests": outcome.requests, "not_replayed": outcome.not_replayed}
    earlier = rows.get(outcome.client.name, {})
    return {key: earlier[key] for key in ("requests", "not_replayed") if key in earlier}


def recording_of(name: str) -> Path:
    return DATA / f"{name}.jsonl"


def write(matrix: Mapping[str, Any], data: Path = MATRIX, page: Path = PAGE) -> None:
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(json.dumps(matrix, indent=1, ensure_ascii=False) + "\n")
    page.write_text(rendered(matrix))


def rendered(matrix: Mapping[str, Any]) -> str:
    return INTRODUCTION + "".join(
        f"\n## {title}\n\n" + "\n".join(_of_protocol(rows)) + "\n"
        for protocol, title in PROTOCOLS.items()
        if (rows := {name: row for name, row in matrix.items() if row["protocol"] == protocol})
    )


def _of_protocol(rows: Mapping[str, Any]) -> Iterator[str]:
    yield "| client | version | passes | known faults | requests replayed |"
    yield "|---|---|---|---|---|"
    for name, row in rows.items():
        if "not_run" in row:
            yield f"| {name} | {row['version']} | not run: {_cell(row['not_run'])} | | |"
            continue
        faults = [_fault(one, verdict) for one, verdict in row["operations"].items() if verdict != PASS]
        passed = [one for one, verdict in row["operations"].items() if verdict == PASS]
        cells = (f"{len(passed)}: {', '.join(passed)}", "<br>".join(faults), _replayed(row))
        yield f"| {name} | {row['version']} | " + " | ".join(map(_cell, cells)) + " |"
    yield from _left_out(rows)


def _left_out(rows: Mapping[str, Any]) -> Iterator[str]:
    named = [f"- {name}: `{one}`" for name, row in rows.items() for one in row.get("not_replayed", ())]
    if named:
        yield from (
            "",
            "Requests that cannot be replayed, most of them because no job runs there:",
            "",
            *named,
        )


def _replayed(row: Mapping[str, Any]) -> str:
    if "replayed_by" in row:
        return f"by [{Path(row['replayed_by']).stem}](../{row['replayed_by']})"
    total, left_out = row.get("requests", 0), len(row.get("not_replayed", ()))
    return f"{total - left_out} of {total}" if left_out else f"all {total}"


def _fault(operation: str, verdict: Mapping[str, str]) -> str:
    if "new" in verdict:
        return f"**{operation}**: new failure, {verdict['new']}"
    upstream = verdict["upstream"]
    link = f"[upstream]({upstream})" if upstream.startswith("http") else upstream
    return f"**{operation}**: {verdict['whose']}: {verdict['why']} ({link})"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
