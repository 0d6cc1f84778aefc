"""What a body says about a backfill or a refresh."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.jobs import BackfillRequest, RefreshRequest
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields

IDEMPOTENCY_HEADER: Final = "idempotency-key"
MAX_KEY_LENGTH: Final = 255

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
}
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
    "full",
}


def backfill_request(call: Call, table: TableIdent, fields: Fields) -> BackfillRequest:
    fields.refuse_unknown(BACKFILL_KEYS)
    require_main_branch(call, table, fields.text("branch"))
    fields.integer("task_size", 1)
    _refuse_unserved(fields, "task_size", "cluster", "manifest")
    smallest, largest = fields.integer("min_checkpoint_size", 1), fields.integer("max_checkpoint_size", 1)
    if smallest is not None and largest is not None and smallest > largest:
        raise InvalidInput("min_checkpoint_size", f"{smallest} is more than max_checkpoint_size, {largest}")
    return BackfillRequest(
        column=fields.required_text("column"),
        where=fields.expression("where"),
        read_version=fields.integer("read_version", 1),
        concurrency=fields.integer("concurrency", 1),
        num_frags=fields.integer("num_frags", 1),
        commit_granularity=fields.integer("commit_granularity", 1),
        checkpoint_size=fields.integer("checkpoint_size", 1),
        min_checkpoint_size=smallest,
        max_checkpoint_size=largest,
        flush_interval_seconds=fields.number("batch_checkpoint_flush_interval_seconds", 0),
    )


def refresh_request(fields: Fields) -> RefreshRequest:
    fields.refuse_unknown(REFRESH_KEYS)
    fields.integer("source_task_size", 1)
    _refuse_unserved(fields, "source_task_size", "cluster", "manifest")
    if fields.integer("output_limit", 0) is not None:
        raise InvalidInput(
            "output_limit", "is for chunker views only, and is not supported yet; leave it out"
        )
    return RefreshRequest(
        source_version=_source_version(fields),
        concurrency=fields.integer("concurrency", 1),
        max_rows_per_fragment=fields.integer("max_rows_per_fragment", 1),
        is_full=fields.flag("full") or False,
    )


def _source_version(fields: Fields) -> int | None:
    """The specification says `src_version`, lancedb's client `source_version`."""
    version, alias = fields.integer("src_version", 1), fields.integer("source_version", 1)
    if version is not None and alias is not None and version != alias:
        raise InvalidInput("source_version", f"{alias} is not src_version, {version}; give one of them")
    return alias if version is None else version


def require_main_branch(call: Call, table: TableIdent, branch: str | None) -> None:
    """Other branches are not served yet; working on main instead would destroy what the caller protects."""
    if branch is not None and branch != MAIN_BRANCH:
        call.operations.versions.get_branch(table, branch)
        raise InvalidInput("branch", f"functions work on {MAIN_BRANCH} only so far, not on {branch!r:.60}")


def idempotency_key(call: Call) -> str | None:
    key = call.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(IDEMPOTENCY_HEADER, f"has to have 1 to {MAX_KEY_LENGTH} characters")
    return key


def _refuse_unserved(fields: Fields, *keys: str) -> None:
    fields.refuse_given(*keys)
    threads = fields.integer("intra_applier_concurrency", 1)
    if threads is not None and threads != 1:
        raise InvalidInput("intra_applier_concurrency", "other than 1 is not supported yet")
