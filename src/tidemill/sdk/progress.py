"""The progress bar of a job on the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from tidemill.jobs.model.jobs import JobState, Progress


class ProgressDisplay(Protocol):
    """Something that shows how far a job is while the block lasts."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, state: JobState, progress: Progress) -> None: ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, state: JobState, progress: Progress) -> None:
        return None


class TerminalBar:
    """A bar on standard error, so that results on standard output stay clean."""

    def __init__(self, description: str) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._bars.add_task(description, total=None, note="queued")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def show(self, state: JobState, progress: Progress) -> None:
        total = progress.total or (1 if state.is_final else None)
        done = total if state is JobState.DONE and total is not None else progress.done
        self._bars.update(self._task, total=total, completed=done, note=note(state, progress))


def progress_display(description: str) -> ProgressDisplay:
    return TerminalBar(description)


def note(state: JobState, progress: Progress) -> str:
    """The words beside the bar."""
    counts = {
        "computed": progress.computed,
        "reused": progress.reused,
        "replaced": progress.replaced,
        "removed": progress.removed,
        "skipped": progress.skipped,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"{state.value.lower()}{': ' if shown else ''}{shown}"
