"""The requests that jobs are made of, with every option declared once: type, default, bounds and help.

`tidemill.jobs.model.declarations` says what is derived from a declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from tidemill.catalog.model.functions import Environment
from tidemill.errors import InvalidInput
from tidemill.jobs.model.declarations import Shorthand, option
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.views import RefreshPolicy


class RowSelection(StrEnum):
    """Which of the rows that need work a backfill is for."""

    # The value is of another version of the function, or of inputs that have changed since.
    STALE = "stale"
    # There never was a value.
    MISSING = "missing"
    # The function failed, and the row was skipped.
    FAILED = "failed"


# Options that several requests have.
BRANCH: Final = option("Branch of the table; main by default.")
WHERE: Final = option("SQL condition: exactly these rows, whether they need work or not.", is_expression=True)
CONCURRENCY: Final = option("Maximum number of tasks at a time.", minimum=1)
CALLS: Final = option("Calls of the function at a time in each task.", minimum=1, maximum=256)
CLUSTER: Final = option("Name of a cluster in the server's settings.")
MANIFEST: Final = option(
    "Packages and variables: the name of a stored manifest, or one as JSON text.",
    hint_for="columns and views that call no function",
)


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What a caller asks of a backfill; None means our default.

    `where` takes exactly its rows, `only` some of those that need work; without either it is all of these.
    `environment` is what `manifest` names, and takes its place when the job is submitted.
    """

    column: str = field(metadata=option("Column to fill; columns of one function are filled together."))
    branch: str | None = field(default=None, metadata=BRANCH)
    where: str | None = field(default=None, metadata=WHERE)
    only: RowSelection | None = field(
        default=None,
        metadata=option(
            "Restrict to stale, missing or failed rows; cannot be combined with where.",
            shorthand=Shorthand("retry_failed", RowSelection.FAILED, "Restrict to failed rows."),
        ),
    )
    read_version: int | None = field(
        default=None,
        metadata=option("Version of the table to compute from; the latest by default.", minimum=1),
    )
    concurrency: int | None = field(default=None, metadata=CONCURRENCY)
    num_frags: int | None = field(
        default=None,
        metadata=option("Maximum number of fragments; the rest is left to another job.", minimum=1),
    )
    commit_granularity: int | None = field(
        default=None,
        metadata=option("Publish after this many fragments instead of all at once.", minimum=1),
    )
    checkpoint_size: int | None = field(
        default=None,
        metadata=option(
            "Rows in the first batch of a task; later ones adapt to how long it took.", minimum=1
        ),
    )
    min_checkpoint_size: int | None = field(
        default=None, metadata=option("Smallest batch that is adapted to.", minimum=1)
    )
    max_checkpoint_size: int | None = field(
        default=None, metadata=option("Largest batch that is adapted to.", minimum=1)
    )
    flush_interval_seconds: float | None = field(
        default=None,
        metadata=option(
            "Seconds after which a task checkpoints its results.",
            name="batch_checkpoint_flush_interval_seconds",
            flag="--flush-interval",
        ),
    )
    intra_applier_concurrency: int | None = field(default=None, metadata=CALLS)
    task_size: int | None = field(default=None, metadata=option("Rows per task.", minimum=1))
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)
    on_error: ErrorPolicy = field(
        default=FAIL_AT_ONCE, metadata=option("What to do when the function fails on a row.")
    )

    def check_options(self) -> None:
        """Raises InvalidInput where options contradict each other."""
        if self.where is not None and self.only is not None:
            raise InvalidInput("only", "excludes where; give one of them")
        first, low, high = self.checkpoint_size, self.min_checkpoint_size, self.max_checkpoint_size
        if low is not None and high is not None and low > high:
            raise InvalidInput("min_checkpoint_size", f"{low} is more than max_checkpoint_size, {high}")
        if first is not None and low is not None and first < low:
            raise InvalidInput("checkpoint_size", f"{first} is less than min_checkpoint_size, {low}")
        if first is not None and high is not None and first > high:
            raise InvalidInput("checkpoint_size", f"{first} is more than max_checkpoint_size, {high}")


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A few rows to compute and show, without publishing them; `environment` as in a backfill."""

    column: str = field(metadata=option("Column to compute."))
    rows: int = field(default=10, metadata=option("Maximum number of rows.", minimum=1, maximum=1000))
    branch: str | None = field(default=None, metadata=BRANCH)
    where: str | None = field(default=None, metadata=WHERE)
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """What a caller asks of a refresh; None means our default, or what the view says.

    `environment` as in a backfill.
    """

    source_version: int | None = field(
        default=None,
        metadata=option(
            "Version of the source to read; the latest by default.",
            # The specification says `src_version`, lancedb's client `source_version`.
            name="src_version",
            alias="source_version",
            minimum=1,
        ),
    )
    concurrency: int | None = field(default=None, metadata=CONCURRENCY)
    intra_applier_concurrency: int | None = field(
        default=None,
        metadata=option(
            "Calls of the function at a time in each task.",
            minimum=1,
            maximum=256,
            hint_for="table functions and for views that call no function",
        ),
    )
    max_rows_per_fragment: int | None = field(
        default=None, metadata=option("Maximum number of rows in a fragment of the view.", minimum=1)
    )
    source_task_size: int | None = field(
        default=None,
        metadata=option(
            "Source rows per task.",
            minimum=1,
            hint_for="table functions, SQL other than plain scans, and refreshes with output_limit",
        ),
    )
    output_limit: int | None = field(
        default=None,
        metadata=option("For chunkers: maximum number of rows in the view, in the order of the source rows."),
    )
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)
    policy: RefreshPolicy | None = field(
        default=None,
        metadata=option(
            "Recompute what changed or everything, for this refresh; the view's own policy by default.",
            # lancedb's client says `full`.
            shorthand=Shorthand("full", RefreshPolicy.FULL, "Recompute every row."),
        ),
    )
    on_error: ErrorPolicy | None = field(
        default=None,
        metadata=option(
            "What to do when a function fails on a row; the view's own policy by default.",
            hint_for="views that call no function",
        ),
    )


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A check whether a view holds what its definition yields, for some source rows or for all."""

    rows: int | None = field(
        default=None, metadata=option("Number of source rows to check, at random; all by default.", minimum=1)
    )
    seed: int = field(default=0, metadata=option("The same seed checks the same rows."))
    cluster: str | None = field(default=None, metadata=CLUSTER)


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to build on a branch; `column` is a canonical path, `parameters` are those given."""

    branch: str
    name: str
    column: str
    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)
    is_replacement: bool = False


JobRequest: TypeAlias = BackfillRequest | PreviewRequest | RefreshRequest | VerifyRequest | IndexRequest
"""One kind of request for each JobKind; `tidemill.store.jobs` and the worker know them by their type."""
