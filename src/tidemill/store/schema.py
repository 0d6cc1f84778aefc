"""The tables as queries use them; the migrations create keys, constraints and indexes."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, Table, Text, Uuid

from tidemill.catalog.model.identifiers import ROOT_NAMESPACE_ID
from tidemill.store.column_types import JsonText, MillisecondTime, RowId

# The root has its own row: a NULL parent would not be covered by the unique key on (parent, name).
ROOT_ID: Final = ROOT_NAMESPACE_ID

metadata: Final = MetaData()

schema_migrations: Final = Table(
    "schema_migrations",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", MillisecondTime, nullable=False),
)

namespaces: Final = Table(
    "namespaces",
    metadata,
    Column("namespace_id", Uuid, primary_key=True),
    Column("parent_id", Uuid),
    Column("name", Text, nullable=False),
    Column("properties", JsonText, nullable=False),
)

tables: Final = Table(
    "tables",
    metadata,
    Column("table_id", Uuid, primary_key=True),
    Column("namespace_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("properties", JsonText, nullable=False),
)

table_versions: Final = Table(
    "table_versions",
    metadata,
    Column("table_id", Uuid, primary_key=True),
    Column("branch", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("manifest_path", Text, nullable=False),
    Column("staged_path", Text, nullable=False),
    Column("manifest_size", BigInteger, nullable=False),
    Column("created_at", MillisecondTime, nullable=False),
    Column("e_tag", Text),
    Column("metadata", JsonText, nullable=False),
    # NULL for versions discovered in storage, and for rows older than this column.
    Column("digest", Text),
    Column("deferred", LargeBinary),
    # Set until the manifest is removed, so that it is not mistaken for a version written outside the catalog.
    Column("is_deleted", Boolean, nullable=False),
)

functions: Final = Table(
    "functions",
    metadata,
    # No foreign key: columns and views may use functions of a namespace that was dropped.
    Column("namespace_id", Uuid, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("registered_by", Text, nullable=False),
    Column("registered_at", MillisecondTime, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("dropped_at", MillisecondTime),
)

computed_columns: Final = Table(
    "computed_columns",
    metadata,
    Column("column_id", Uuid, primary_key=True),
    Column("table_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("function_digest", Text, nullable=False),
    Column("inputs", JsonText, nullable=False),
    Column("siblings", JsonText, nullable=False),
    Column("has_auto_backfill", Boolean, nullable=False),
    Column("kept_digests", JsonText, nullable=False),
    Column("field_ids", JsonText, nullable=False),
    Column("bound_version", BigInteger, nullable=False),
    Column("function_namespace_id", Uuid, nullable=False),
    # Owner columns are NULL in rows older than them.
    Column("owner", Text),
    Column("owner_roles", JsonText, nullable=False),
)

materialized_views: Final = Table(
    "materialized_views",
    metadata,
    Column("view_id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("query", JsonText, nullable=False),
    Column("raw_query", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("function_digest", Text),
    Column("inputs", JsonText, nullable=False),
    Column("has_auto_refresh", Boolean, nullable=False),
    Column("output", LargeBinary),
    Column("columns", JsonText, nullable=False),
    Column("partition_by", Text),
    Column("partition_index", Text),
    Column("statement", Text),
    Column("policy", Text, nullable=False),
    Column("on_error", JsonText, nullable=False),
    Column("environment", JsonText, nullable=False),
    Column("function_namespace_id", Uuid, nullable=False),
    Column("owner", Text),
    Column("owner_roles", JsonText, nullable=False),
)

view_sources: Final = Table(
    "view_sources",
    metadata,
    Column("view_id", Uuid, primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("source_id", Uuid, nullable=False),
    Column("levels", JsonText, nullable=False),
    Column("source_columns", JsonText, nullable=False),
)

coverage: Final = Table(
    "coverage",
    metadata,
    Column("subject_id", Uuid, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("watermark", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("row_ids", LargeBinary, nullable=False),
    Column("published", BigInteger, nullable=False),
    # NULL in rows older than this column.
    Column("outdated_row_ids", LargeBinary),
    # NULL in rows older than this column: they know nothing of data files.
    Column("files", LargeBinary),
    Column("segments", JsonText, nullable=False),
)

row_errors: Final = Table(
    "row_errors",
    metadata,
    Column("subject_id", Uuid, primary_key=True),
    Column("row_id", RowId, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("exception", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("is_skipped", Boolean, nullable=False),
    Column("at", MillisecondTime, nullable=False),
)

environments: Final = Table(
    "environments",
    metadata,
    Column("name", Text, primary_key=True),
    Column("packages", JsonText, nullable=False),
    Column("variables", JsonText, nullable=False),
)

jobs: Final = Table(
    "jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("table_id", Uuid, nullable=False),
    Column("table_levels", JsonText, nullable=False),
    Column("subject_id", Uuid, nullable=False),
    Column("request", JsonText, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_by", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("cluster", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("owner", Text),
    Column("lease_until_at", MillisecondTime),
    Column("cancel_requested_at", MillisecondTime),
    Column("pause_requested_at", MillisecondTime),
    Column("created_at", MillisecondTime, nullable=False),
    Column("started_at", MillisecondTime),
    Column("finished_at", MillisecondTime),
    Column("updated_at", MillisecondTime, nullable=False),
    Column("progress", JsonText, nullable=False),
    Column("result", JsonText),
    Column("failure", JsonText),
    Column("event_count", BigInteger, nullable=False),
    Column("part_count", BigInteger, nullable=False),
)

job_events: Final = Table(
    "job_events",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", MillisecondTime, nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", JsonText, nullable=False),
)

job_parts: Final = Table(
    "job_parts",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("table_id", Uuid, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("row_ids", LargeBinary, nullable=False),
)

transactions: Final = Table(
    "transactions",
    metadata,
    Column("transaction_id", Text, primary_key=True),
    Column("properties", JsonText, nullable=False),
    Column("updated_at", MillisecondTime, nullable=False),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("namespace_id", Uuid, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed_value", LargeBinary, nullable=False),
    Column("created_at", MillisecondTime, nullable=False),
    Column("updated_at", MillisecondTime, nullable=False),
)

stored_queries: Final = Table(
    "stored_queries",
    metadata,
    Column("table_id", Uuid, primary_key=True),
    Column("statement", Text, nullable=False),
    Column("query", JsonText, nullable=False),
    Column("output", LargeBinary, nullable=False),
)

workers: Final = Table(
    "workers",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("last_seen_at", MillisecondTime, nullable=False),
)

iceberg_entries: Final = Table(
    "iceberg_entries",
    metadata,
    Column("table_id", Uuid, primary_key=True),
    Column("metadata_location", Text, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
)

iceberg_purges: Final = Table(
    "iceberg_purges",
    metadata,
    Column("entry_id", Uuid, primary_key=True),
    Column("levels", JsonText, nullable=False),
    Column("place", Text, nullable=False),
    Column("metadata_location", Text, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Column("requested_at", MillisecondTime, nullable=False),
)

receipts: Final = Table(
    "receipts",
    metadata,
    Column("key", Text, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("body_digest", Text, nullable=False),
    Column("outcome", LargeBinary, nullable=False),
    Column("expires_at", MillisecondTime, nullable=False),
)

audit_events: Final = Table(
    "audit_events",
    metadata,
    Column("event_id", Uuid, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("is_claimed", Boolean, nullable=False),
    Column("address", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("objects", JsonText, nullable=False),
    Column("objects_omitted", BigInteger, nullable=False),
    Column("decision", Text, nullable=False),
    Column("status", BigInteger),
    Column("error_code", Text),
    Column("job_id", Text),
    # Written in the transaction of the change.
    Column("is_committed", Boolean, nullable=False),
    Column("count", BigInteger, nullable=False),
)

access_revision: Final = Table("access_revision", metadata, Column("revision", BigInteger, nullable=False))

clients: Final = Table(
    "clients",
    metadata,
    Column("client_id", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", MillisecondTime, nullable=False),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("client_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("scope", JsonText),
    Column("created_at", MillisecondTime, nullable=False),
    Column("expires_at", MillisecondTime),
    Column("last_used_at", MillisecondTime),
)

roles: Final = Table(
    "roles",
    metadata,
    Column("name", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", MillisecondTime, nullable=False),
)

role_members: Final = Table(
    "role_members",
    metadata,
    Column("role", Text, primary_key=True),
    Column("principal", Text, primary_key=True),
)

grants: Final = Table(
    "grants",
    metadata,
    Column("grant_id", Uuid, primary_key=True),
    Column("grantee_kind", Text, nullable=False),
    Column("grantee", Text, nullable=False),
    Column("permission", Text, nullable=False),
    Column("namespace_id", Uuid),
    Column("table_id", Uuid),
    Column("function", Text),
    Column("granted_by", Text, nullable=False),
    Column("granted_at", MillisecondTime, nullable=False),
)
