"""What a body says about a backfill, a preview, a refresh or a verification."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.environments import Environment
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.jobs import (
    BackfillRequest,
    PreviewRequest,
    RefreshRequest,
    RowSelection,
    VerifyRequest,
)
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.error_policies import error_policy
from tidemill.protocols.http.fields import Fields

IDEMPOTENCY_HEADER: Final = "idempotency-key"
MAX_KEY_LENGTH: Final = 255
DEFAULT_PREVIEW: Final = 10
MAX_PREVIEW: Final = 1000
# So many places in one task may call a function at once.
MAX_THREADS: Final = 256

ENVELOPE_KEYS: Final = frozenset({"identity", "context", "id"})
BACKFILL_KEYS: Final = ENVELOPE_KEYS | {
    "column",
    "branch",
    "where",
    "concurrency",
    "intra_applier_concurrency",
    "min_checkpoint_size",
    "max_checkpoint_size",
    "batch_checkpoint_flush_interval_seconds",
    "read_version",
    "task_size",
    "num_frags",
    "checkpoint_size",
    "commit_granularity",
    "cluster",
    "manifest",
    # Not in the specification.
    "only",
    "retry_failed",
    "on_error",
}
PREVIEW_KEYS: Final = ENVELOPE_KEYS | {"column", "rows", "where", "branch", "cluster", "manifest"}
REFRESH_KEYS: Final = ENVELOPE_KEYS | {
    "src_version",
    "source_version",
    "max_rows_per_fragment",
    "concurrency",
    "intra_applier_concurrency",
    "source_task_size",
    "cluster",
    "output_limit",
    "manifest",
    # Not in the specification.
    "full",
    "policy",
    "on_error",
}
VERIFY_KEYS: Final = ENVELOPE_KEYS | {"rows", "seed", "cluster"}


def backfill_request(call: Call, fields: Fields) -> BackfillRequest:
    fields.refuse_unknown(BACKFILL_KEYS)
    _check_sizes(fields)
    where, only = fields.expression("where"), _selection(fields)
    if where is not None and only is not None:
        raise InvalidInput("only", "excludes where; give one of them")
    return BackfillRequest(
        column=fields.required_text("column"),
        branch=fields.text("branch"),
        where=where,
        only=only,
        read_version=fields.integer("read_version", 1),
        concurrency=fields.integer("concurrency", 1),
        num_frags=fields.integer("num_frags", 1),
        commit_granularity=fields.integer("commit_granularity", 1),
        checkpoint_size=fields.integer("checkpoint_size", 1),
        min_checkpoint_size=fields.integer("min_checkpoint_size", 1),
        max_checkpoint_size=fields.integer("max_checkpoint_size", 1),
        flush_interval_seconds=fields.number("batch_checkpoint_flush_interval_seconds", 0),
        intra_applier_concurrency=_at_most(fields, "intra_applier_concurrency", MAX_THREADS),
        task_size=fields.integer("task_size", 1),
        cluster=fields.text("cluster"),
        environment=_environment(call, fields),
        on_error=error_policy(fields, "on_error"),
    )


def preview_request(call: Call, fields: Fields) -> PreviewRequest:
    fields.refuse_unknown(PREVIEW_KEYS)
    return PreviewRequest(
        column=fields.required_text("column"),
        rows=_at_most(fields, "rows", MAX_PREVIEW) or DEFAULT_PREVIEW,
        branch=fields.text("branch"),
        where=fields.expression("where"),
        cluster=fields.text("cluster"),
        environment=_environment(call, fields),
    )


def refresh_request(call: Call, fields: Fields) -> RefreshRequest:
    fields.refuse_unknown(REFRESH_KEYS)
    return RefreshRequest(
        source_version=_source_version(fields),
        concurrency=fields.integer("concurrency", 1),
        intra_applier_concurrency=_at_most(fields, "intra_applier_concurrency", MAX_THREADS),
        max_rows_per_fragment=fields.integer("max_rows_per_fragment", 1),
        source_task_size=fields.integer("source_task_size", 1),
        output_limit=fields.integer("output_limit", 0),
        cluster=fields.text("cluster"),
        environment=_environment(call, fields),
        policy=_policy(fields),
        on_error=_error_policy(fields),
    )


def verify_request(call: Call, fields: Fields) -> VerifyRequest:
    fields.refuse_unknown(VERIFY_KEYS)
    return VerifyRequest(
        rows=fields.integer("rows", 1),
        seed=fields.integer("seed", 0) or 0,
        cluster=fields.text("cluster"),
    )


def require_main_branch(call: Call, table: TableIdent, branch: str | None) -> None:
    """Functions are declared for a table; working on main instead would destroy what the caller protects."""
    if branch is not None and branch != MAIN_BRANCH:
        call.operations.versions.describe(call.caller, table, branch, None)
        raise InvalidInput("branch", f"functions are declared on {MAIN_BRANCH} only, not on {branch!r:.60}")


def idempotency_key(call: Call) -> str | None:
    key = call.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(IDEMPOTENCY_HEADER, f"has to have 1 to {MAX_KEY_LENGTH} characters")
    return key


def _check_sizes(fields: Fields) -> None:
    """The size that batches begin with lies between their bounds."""
    smallest, largest = fields.integer("min_checkpoint_size", 1), fields.integer("max_checkpoint_size", 1)
    first = fields.integer("checkpoint_size", 1)
    if smallest is not None and largest is not None and smallest > largest:
        raise InvalidInput("min_checkpoint_size", f"{smallest} is more than max_checkpoint_size, {largest}")
    if first is not None and smallest is not None and first < smallest:
        raise InvalidInput("checkpoint_size", f"{first} is less than min_checkpoint_size, {smallest}")
    if first is not None and largest is not None and first > largest:
        raise InvalidInput("checkpoint_size", f"{first} is more than max_checkpoint_size, {largest}")


def _at_most(fields: Fields, key: str, maximum: int) -> int | None:
    value = fields.integer(key, 1)
    if value is not None and value > maximum:
        raise InvalidInput(fields.name_of(key), f"has to be between 1 and {maximum}, not {value}")
    return value


def _selection(fields: Fields) -> RowSelection | None:
    raw = fields.text("only")
    only = None if raw is None else read_choice(RowSelection, raw, "only")
    if not fields.flag("retry_failed"):
        return only
    if only not in (None, RowSelection.FAILED):
        raise InvalidInput("retry_failed", f"excludes only={only}; give one of them")
    return RowSelection.FAILED


def _policy(fields: Fields) -> RefreshPolicy | None:
    """lancedb's client says `full`; nothing leaves it to the view."""
    raw = fields.text("policy")
    policy = None if raw is None else read_choice(RefreshPolicy, raw, "policy")
    if not fields.flag("full"):
        return policy
    if policy not in (None, RefreshPolicy.FULL):
        raise InvalidInput("full", f"excludes policy={policy}; give one of them")
    return RefreshPolicy.FULL


def _error_policy(fields: Fields) -> ErrorPolicy | None:
    return error_policy(fields, "on_error") if fields.has("on_error") else None


def _environment(call: Call, fields: Fields) -> Environment | None:
    return call.operations.environments.resolve(call.caller, fields.text("manifest"))


def _source_version(fields: Fields) -> int | None:
    """The specification says `src_version`, lancedb's client `source_version`."""
    version, alias = fields.integer("src_version", 1), fields.integer("source_version", 1)
    if version is not None and alias is not None and version != alias:
        raise InvalidInput("source_version", f"{alias} is not src_version, {version}; give one of them")
    return alias if version is None else version
