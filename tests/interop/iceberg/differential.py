"""Sends the same random histories to Iceberg's own server and to ours, and tells where the answers differ."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.iceberg.explanations import BAD_REQUESTS, EXPLAINED, Difference
from tests.interop.iceberg.histories import NAMESPACES, Histories, Request, Seen
from tests.interop.iceberg.maven import JarsMissing
from tests.interop.iceberg.sides import Answer, Side, both_servers, in_order, unlike

REQUESTS_PER_HISTORY: Final = 60
SHOWN: Final = 1500
PROBE_SCHEMA: Final = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
PROBE_VERSION: Final = {
    "version-id": 1,
    "schema-id": 0,
    "timestamp-ms": 0,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": [],
}


@dataclass
class Tally:
    requests: int = 0
    accepted: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[Difference] = field(default_factory=list)


class Comparison:
    def __init__(self, reference: Side, ours: Side, tally: Tally) -> None:
        self._reference = reference
        self._ours = ours
        self._tally = tally

    def run(self, seed: int, length: int) -> None:
        """One history, from an empty catalog."""
        seen = Seen()
        for side in (self._reference, self._ours):
            side.empty()
            for levels in NAMESPACES:
                side.send("POST", "namespaces", {"namespace": list(levels)})
        histories = Histories(random.Random(seed), seen, self._first_summary())
        for _ in range(length):
            request = histories.next_request()
            answers = self._reference.ask(request), self._ours.ask(request)
            self._look(request, seen, is_known=self._compare(request, *answers))
            if self._has_parted(request, answers):
                return

    def _first_summary(self) -> Mapping[str, str]:
        """The reference writes this into a new view, whatever the client sent; ours takes the client's."""
        body = {"name": "probe", "schema": PROBE_SCHEMA, "view-version": PROBE_VERSION, "properties": {}}
        made = self._reference.send("POST", "namespaces/a/views", body)
        self._reference.send("DELETE", "namespaces/a/views/probe")
        return dict(made.body["metadata"]["versions"][0]["summary"])

    def _compare(self, request: Request, reference: Answer, ours: Answer) -> bool:
        """Whether the answers differ."""
        self._tally.requests += 1
        self._tally.accepted += ours.status < 300
        what = self._difference(reference, ours)
        if what is not None:
            self._note(Difference(request, reference, ours, what))
        return what is not None

    def _difference(self, reference: Answer, ours: Answer) -> str | None:
        if reference.status != ours.status:
            return f"status {reference.status} != {ours.status}"
        if reference.status >= 400:
            kinds = reference.error[0], ours.error[0]
            return (
                None
                if kinds[0] == kinds[1] or set(kinds) <= BAD_REQUESTS
                else f"type {kinds[0]} != {kinds[1]}"
            )
        if isinstance(reference.body, dict) and "namespace" in reference.body:
            # Where the reference puts the namespace's tables.
            (reference.body.get("properties") or {}).pop("location", None)
        return unlike(
            in_order(self._reference.neutral(reference.body)), in_order(self._ours.neutral(ours.body))
        )

    def _look(self, request: Request, seen: Seen, *, is_known: bool) -> None:
        """Holds the states of what the request was about against each other."""
        for name in request.subjects:
            reference, ours = self._reference.state(name), self._ours.state(name)
            if ours is not None:
                self._check_readable(request, *ours)
            seen.tables.pop(name, None)
            seen.views.pop(name, None)
            what = unlike(self._reference.neutral(_listed(reference)), self._ours.neutral(_listed(ours)))
            if what is not None:
                if not is_known:
                    states = Answer(200, _listed(reference)), Answer(200, _listed(ours))
                    self._note(Difference(request, *states, f"state: {what}"))
                # What comes after a difference would differ, too.
                self._reference.forget(name)
                self._ours.forget(name)
            elif ours is not None:
                there = seen.tables if ours[0] == "tables" else seen.views
                there[name] = ours[1]["metadata"]

    def _check_readable(self, request: Request, kind: str, ours: Mapping[str, Any]) -> None:
        """That Iceberg's library reads the file as what it was written for."""
        register = "register" if kind == "tables" else "register-view"
        written = Path(ours["metadata-location"].removeprefix("file://"))
        # The reference removes the file of a view that is dropped.
        copied = shutil.copy(written, f"{self._reference.place.removeprefix('file://')}/{written.name}")
        body = {"name": "probe", "metadata-location": str(copied)}
        read = self._reference.send("POST", f"namespaces/a/{register}", body)
        if read.status == 200:
            what = unlike(self._ours.neutral(read.body), self._ours.neutral(ours))
            self._reference.send("DELETE", f"namespaces/a/{kind}/probe")
        else:
            what = f"{read.status} {read.error}"
        if what is not None:
            self._note(Difference(request, read, Answer(200, ours), f"read by Iceberg's library: {what}"))

    def _note(self, found: Difference) -> None:
        reason = next((reason for reason, applies in EXPLAINED.items() if applies(found)), None)
        if reason is None:
            self._tally.unexplained.append(found)
        else:
            self._tally.explained[reason] += 1

    def _has_parted(self, request: Request, answers: Sequence[Answer]) -> bool:
        """Whether one of them did what the other refused, to something that is not looked at afterwards."""
        done = {answer.status < 300 for answer in answers}
        return len(done) > 1 and (request.is_mangled or not request.subjects)


def _listed(state: tuple[str, Mapping[str, Any]] | None) -> list[Any]:
    return [] if state is None else list(state)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=20)
    parser.add_argument("--length", type=int, default=REQUESTS_PER_HISTORY)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--shown", type=int, default=20, help="how many unexplained differences are printed")
    given = parser.parse_args(arguments)
    tally = Tally()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidemill-differential-") as folder,
            both_servers(Path(folder)) as (reference, ours),
        ):
            for seed in range(given.seed, given.seed + given.histories):
                Comparison(reference, ours, tally).run(seed, given.length)
    except JarsMissing as missing:
        print(f"Iceberg's server cannot be run here: {missing}")
        return 2
    _print(tally, given.histories, given.shown)
    return 1 if tally.unexplained else 0


def _print(tally: Tally, histories: int, shown: int) -> None:
    for found in tally.unexplained[:shown]:
        kind = f"{found.request.operation}{' (mangled)' if found.request.is_mangled else ''}"
        print(f"--- {kind}: {found.what:.600}")
        print(f"    {found.request.method} {found.request.path} {json.dumps(found.request.body):.{SHOWN}}")
        for side, answer in (("reference", found.reference), ("ours", found.ours)):
            told = answer.error if answer.error[0] else (json.dumps(answer.body), "")
            print(f"    {side}: {answer.status} {told[0]:.{SHOWN}}: {told[1]:.300}")
    print(f"{histories} histories, {tally.requests} requests, {tally.accepted} of them accepted by ours")
    for reason, count in tally.explained.most_common():
        print(f"{count:6} explained: {reason}")
    print(f"{len(tally.unexplained):6} unexplained")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
