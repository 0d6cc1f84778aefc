"""How running tasks report progress and failures to the driver: small files in a shared directory.

Spark returns nothing from a task before it ends, and accumulators are not available on Spark Connect. A task
therefore writes files whose names carry the numbers (`<uuid>.rows-500`, `<uuid>.skipped-2`, `<uuid>.failed`),
and the driver lists the directory a few times per second. Files are written under a hidden name and then
renamed, so the driver never reads a partial one. A retried task reports its rows again, so progress may be
overestimated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import Final
from uuid import uuid4

from pyarrow import fs

from tidemill.jobs.model.failures import RowFailure
from tidemill.storage.warehouse import open_location

REPORT_SECONDS: Final = 0.5
FAILED: Final = ".failed"
SKIPPED: Final = ".skipped-"


class TaskReport:
    """The task's side: reports finished rows, at most twice a second, skipped rows, and the fatal failure."""

    def __init__(self, location: str) -> None:
        self._filesystem, self._directory = open_location(location)
        self._pending = 0
        self._reported_at = monotonic()

    def rows_done(self, rows: int) -> None:
        self._pending += rows
        if monotonic() - self._reported_at >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._write(f"{uuid4()}.rows-{self._pending}", b"")
        self._pending = 0
        self._reported_at = monotonic()

    def skipped(self, failures: Sequence[RowFailure]) -> None:
        if failures:
            content = json.dumps([asdict(failure) for failure in failures]).encode()
            self._write(f"{uuid4()}{SKIPPED}{len(failures)}", content)

    def failed(self, failure: RowFailure) -> None:
        self._write(f"{uuid4()}{FAILED}", json.dumps(asdict(failure)).encode())

    def _write(self, name: str, content: bytes) -> None:
        staged = f"{self._directory}/.{name}"
        with self._filesystem.open_output_stream(staged) as file:
            file.write(content)
        self._filesystem.move(staged, f"{self._directory}/{name}")


class StageScratch:
    """The driver's side: a directory that exists as long as the stage runs."""

    def __init__(self, root: str) -> None:
        self.location = f"{root}/{uuid4()}"
        self._filesystem, self._directory = open_location(self.location)
        self._filesystem.create_dir(self._directory)

    def rows_done(self) -> int:
        return sum(int(name.rpartition("-")[2]) for name in self._names() if ".rows-" in name)

    def rows_skipped(self) -> int:
        return sum(int(name.rpartition("-")[2]) for name in self._names() if SKIPPED in name)

    def skipped(self) -> list[RowFailure]:
        """The failures of the skipped rows."""
        return [
            RowFailure(**failure)
            for name in self._names()
            if SKIPPED in name
            for failure in json.loads(self._read(name))
        ]

    def find_failure(self) -> RowFailure | None:
        for name in self._names():
            if name.endswith(FAILED) and not name.startswith("."):
                return RowFailure(**json.loads(self._read(name)))
        return None

    def remove(self) -> None:
        self._filesystem.delete_dir(self._directory)

    def _read(self, name: str) -> bytes:
        with self._filesystem.open_input_file(f"{self._directory}/{name}") as file:
            content: bytes = file.read()
        return content

    def _names(self) -> list[str]:
        infos = self._filesystem.get_file_info(fs.FileSelector(self._directory))
        return [info.base_name for info in infos if not info.base_name.startswith(".")]
