"""Options that several commands have, as groups that a command takes as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.jobs.model.jobs import RowSelection

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="For instance library.docs.")]
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="A computed column.")]
ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="For instance library.passages.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
FullOption = Annotated[bool, typer.Option("--full", help="Compute every row again.")]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Start the job and return.")]
WhereOption = Annotated[str | None, typer.Option("--where", help="SQL condition: exactly these rows.")]
BranchOption = Annotated[str | None, typer.Option("--branch", help="Branch of the table; main by default.")]
ClusterOption = Annotated[str | None, typer.Option("--cluster", help="Where to run: a configured cluster.")]
ManifestOption = Annotated[
    str | None, typer.Option("--manifest", help="Name of a stored manifest, or one as JSON.")
]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", min=1, help="Tasks at a time.")]
OnlyOption = Annotated[
    RowSelection | None, typer.Option("--only", help="Only rows that are this; goes without --where.")
]
RetryFailedOption = Annotated[bool, typer.Option("--retry-failed", help="The same as --only failed.")]
VersionOption = Annotated[
    int | None, typer.Option("--read-version", min=1, help="Version of the table; the latest by default.")
]
FragmentsOption = Annotated[
    int | None, typer.Option("--num-frags", min=1, help="Stop after so many fragments.")
]
TaskSizeOption = Annotated[int | None, typer.Option("--task-size", min=1, help="Rows of a task.")]
CallsOption = Annotated[
    int | None, typer.Option("--intra-applier-concurrency", min=1, help="Calls at a time in each task.")
]
CommitOption = Annotated[
    int | None, typer.Option("--commit-granularity", min=1, help="Publish after so many fragments.")
]
SizeOption = Annotated[
    int | None, typer.Option("--checkpoint-size", min=1, help="Rows of the first batch of a task.")
]
LeastSizeOption = Annotated[
    int | None, typer.Option("--min-checkpoint-size", min=1, help="Smallest batch it is adapted to.")
]
MostSizeOption = Annotated[
    int | None, typer.Option("--max-checkpoint-size", min=1, help="Largest batch it is adapted to.")
]
FlushOption = Annotated[
    float | None,
    typer.Option("--flush-interval", min=0, help="Seconds after which results are put in safety."),
]
SourceVersionOption = Annotated[
    int | None, typer.Option("--src-version", min=1, help="Version of the source; the latest by default.")
]
OutputLimitOption = Annotated[
    int | None, typer.Option("--output-limit", min=0, help="Show at most so many rows of a chunker.")
]
SourceTaskOption = Annotated[
    int | None, typer.Option("--source-task-size", min=1, help="Rows of the source per task.")
]
FragmentRowsOption = Annotated[
    int | None, typer.Option("--max-rows-per-fragment", min=1, help="Rows of the files it writes.")
]
RefreshPolicyOption = Annotated[
    RefreshPolicy | None,
    typer.Option("--policy", help="Compute what changed, or everything; the view's own by default."),
]


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """The options of a backfill, apart from what to do about failing rows."""

    where: WhereOption = None
    only: OnlyOption = None
    retry_failed: RetryFailedOption = False
    branch: BranchOption = None
    read_version: VersionOption = None
    num_frags: FragmentsOption = None
    cluster: ClusterOption = None
    manifest: ManifestOption = None
    concurrency: ConcurrencyOption = None
    intra_applier_concurrency: CallsOption = None
    task_size: TaskSizeOption = None
    commit_granularity: CommitOption = None
    checkpoint_size: SizeOption = None
    min_checkpoint_size: LeastSizeOption = None
    max_checkpoint_size: MostSizeOption = None
    batch_checkpoint_flush_interval_seconds: FlushOption = None

    def options(self) -> dict[str, Any]:
        only = self.only.value if self.only else None
        return {**asdict(self), "only": only, "retry_failed": self.retry_failed or None}


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """The options of a refresh, apart from what to do about failing rows."""

    full: FullOption = False
    policy: RefreshPolicyOption = None
    src_version: SourceVersionOption = None
    output_limit: OutputLimitOption = None
    cluster: ClusterOption = None
    manifest: ManifestOption = None
    concurrency: ConcurrencyOption = None
    intra_applier_concurrency: CallsOption = None
    source_task_size: SourceTaskOption = None
    max_rows_per_fragment: FragmentRowsOption = None

    def options(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """The options of a preview."""

    where: WhereOption = None
    branch: BranchOption = None
    cluster: ClusterOption = None
    manifest: ManifestOption = None

    def options(self) -> dict[str, Any]:
        return asdict(self)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a group of options replaced by its options."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}

    @functools.wraps(command)
    def called(*arguments: Any, **given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(*arguments, **made, **given)

    parameters = [
        option
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        for option in _options(parameter)
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if not is_dataclass(parameter.annotation):
        return [parameter]
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(
            field.name, parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(parameter.annotation)
    ]
