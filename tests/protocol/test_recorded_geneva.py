"""What Geneva's client sent during `make interop RECORD=1`, sent again: the server answers as it did then.

The client's own writes are not repeated, only the rows that its tables began with. Most jobs are cancelled
once they are accepted; those with tuning run to their end. See `tests/interop/geneva/recording.py`.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest

from tests.geneva import PICKLED_WITH
from tests.interop.geneva.recording import unpacked
from tests.protocol.geneva_wire import HEADERS

FILE: Final = Path(__file__).parents[1] / "data" / "geneva_requests.jsonl"
LINES: Final = [json.loads(line) for line in FILE.read_text().splitlines()]
TEXTS: Final = {line["text"]: unpacked(line["is"]) for line in LINES if "text" in line}
SCENARIOS: Final = list(dict.fromkeys(line["scenario"] for line in LINES if "scenario" in line))
PLACEHOLDER: Final = re.compile(r"\{t(?:ext)?\d+\}")
JOB_TIMEOUT_SECONDS: Final = 200
# What the views show whose refresh runs to its end.
SHOWN: Final[dict[str, dict[str, list[Any]]]] = {
    "query view and options": {"id": [1, 2, 3], "n": [2, 1, 3]},
    "chunker view and options": {"id": [1, 1, 2, 3, 3, 3], "word": ["a", "b", "c", "d", "e", "f"]},
    "table function view and options": {"ids": ["1,2,3"], "letters": [6]},
}

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != PICKLED_WITH, reason="the functions were pickled with another Python"
)


@dataclass
class Replay:
    http: httpx.Client
    names: dict[str, str] = field(default_factory=dict)

    def filled(self, value: Any) -> Any:
        """With names of this replay, which are as long as the client's."""

        def own(found: re.Match[str]) -> str:
            text = TEXTS.get(found[0])
            return text or self.names.setdefault(found[0], f"t{uuid4().hex[:10]}")

        return json.loads(PLACEHOLDER.sub(own, json.dumps(value)))

    def described(self, name: str) -> Any:
        answer = self.http.post(f"/v1/table/{name}/describe", json={"id": [name]})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def write(self, line: dict[str, Any]) -> None:
        """As the client does: declared, then written into its place."""
        name = self.filled(line["rows"])
        declared = self.http.post(f"/v1/table/{name}/declare", json={"id": [name]})
        rows = pa.ipc.open_stream(base64.b64decode(line["arrow"])).read_all()
        lance.write_dataset(rows, declared.json()["location"])

    def send(self, line: dict[str, Any]) -> httpx.Response:
        path, body = self.filled([line["call"].removeprefix("POST "), line["body"]])
        if body.get("read_version") is not None:
            body["read_version"] = self.described(body["id"][0])["version"]
        return self.http.post(path, json=body)

    def settled(self, job_id: str, *, is_wanted: bool) -> str:
        """The state in which the job ends; it is cancelled unless it is wanted."""
        if not is_wanted:
            self.http.post("/v1/jobs/cancel", json={"job_id": job_id})
        give_up_at = time.monotonic() + JOB_TIMEOUT_SECONDS
        while time.monotonic() < give_up_at:
            state = self.http.post("/v1/jobs/describe", json={"job_id": job_id}).json()["job_state"]
            if state != "IN_PROGRESS":
                return str(state)
            time.sleep(0.05)
        raise AssertionError(f"job {job_id} did not end")


@pytest.fixture
def replay(http: httpx.Client) -> Iterator[Replay]:
    with httpx.Client(
        base_url=http.base_url, headers=HEADERS, params={"delimiter": "$"}, timeout=60
    ) as client:
        made = Replay(client)
        yield made
        for name in reversed(made.names.values()):
            client.post(f"/v1/table/{name}/drop", json={})


def form(answer: httpx.Response) -> Any:
    body = answer.json()
    if answer.is_success:
        return sorted(body)
    return {"code": body["code"], "field": body["error"].partition(":")[0]}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_gets_the_answers_that_it_got(replay: Replay, scenario: str) -> None:
    for line in (line for line in LINES if line.get("scenario") == scenario):
        if "rows" in line:
            replay.write(line)
            continue
        answer = replay.send(line)
        assert (answer.status_code, form(answer)) == (line["status"], line["answer"]), answer.text
        if answer.is_success and "job_id" in answer.json():
            is_wanted = scenario in SHOWN
            state = replay.settled(answer.json()["job_id"], is_wanted=is_wanted)
            assert state == "DONE" or not is_wanted
    if scenario in SHOWN:
        view = replay.described(list(replay.names.values())[-1])
        rows = lance.dataset(view["location"], version=view["version"]).to_table().to_pydict()
        assert {name: sorted(rows[name]) for name in SHOWN[scenario]} == {
            name: sorted(values) for name, values in SHOWN[scenario].items()
        }


def test_the_tuning_of_every_kind_of_view_is_recorded() -> None:
    assert set(SHOWN) <= set(SCENARIOS)
    tuned = [line for line in LINES if line.get("body", {}).get("source_task_size") == 1]
    assert len(tuned) == len(SHOWN)
    assert {line["status"] for line in tuned} == {202}
