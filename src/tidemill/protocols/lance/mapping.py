"""Translates namespaces, tables, versions and transactions between the Lance protocol and the core."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import orjson

from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion, VersionEntry
from tidemill.errors import InvalidInput
from tidemill.lance.model.tables import TableDescription, TablePoint, TableSummary
from tidemill.lance.transactions import (
    SetMode,
    SetProperty,
    SetStatus,
    Transaction,
    TransactionAction,
    TransactionStatus,
    UnsetMode,
    UnsetProperty,
)
from tidemill.protocols.http.call import KIB, Call, without_nulls
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.lance.arrow_json import RENDERED, Vocabulary, metadata_json

PROPERTIES_HEADER = "x-lance-table-properties"
LOCATION_HEADER = "x-lance-table-location"
# Options of Lance for new tables that ours always have; clients that need them send them.
NEW_TABLE_OPTIONS: Final = ("new_table_enable_stable_row_ids", "new_table_enable_v2_manifest_paths")
# Options of Lance's object stores that tune how requests are sent, without the prefix `aws_`.
TRANSFER_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "checksum_algorithm",
        "client_max_retries",
        "client_retry_timeout",
        "connect_timeout",
        "default_region",
        "download_retry_count",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "region",
        "request_timeout",
        "timeout",
        "unsigned_payload",
        "user_agent",
        "virtual_hosted_style_request",
    }
)
# In the names of options that would send data, or the credential for it, elsewhere.
REDIRECTING_WORDS: Final = (
    "account",
    "bucket",
    "certificate",
    "container",
    "credential",
    "endpoint",
    "key",
    "profile",
    "proxy",
    "role",
    "sas",
    "secret",
    "token",
    "url",
)
MAX_PROPERTIES: Final = 1000
MAX_PROPERTIES_BYTES: Final = 256 * KIB
ACTIONS: Final = ("setStatusAction", "setPropertyAction", "unsetPropertyAction")
# The specification uses camelCase; clients of lancedb and in Python may use snake_case.
SNAKE_CASE_ACTIONS: Final = ("set_status_action", "set_property_action", "unset_property_action")


def properties_of(fields: Fields) -> dict[str, str]:
    return _checked_properties(fields.texts_by_name("properties") or {})


def table_properties(call: Call) -> dict[str, str]:
    """The properties of a new table: JSON in the query, or in a header from older clients."""
    raw = call.query.get("properties") or call.headers.get(PROPERTIES_HEADER)
    return _checked_properties(json_mapping(raw, "properties"))


def table_location(call: Call) -> str | None:
    """The location of a new table, if the caller chooses one."""
    return call.query.get("location") or call.headers.get(LOCATION_HEADER) or None


def check_storage_options(call: Call) -> None:
    """The server writes with options of its own. Those that would only tune a transfer have no effect here.

    All others are rejected by name: a caller who sends an endpoint, a credential or a kind of encryption
    must not believe that it was used. Values are not repeated, because they may be secrets.
    """
    for name, value in json_mapping(call.query.get("storage_options"), "storage_options").items():
        field, option = f"storage_options.{name}"[:200], name.lower().removeprefix("aws_")
        if option in TRANSFER_OPTIONS:
            continue
        if option in NEW_TABLE_OPTIONS:
            if value.lower() != "true":
                raise InvalidInput(field, "must be true: tables of this server always have it")
        elif any(word in option for word in REDIRECTING_WORDS):
            raise InvalidInput(field, "is for the server to choose: it decides where and as whom it writes")
        else:
            raise InvalidInput(field, "has no effect on this server; leave it out")


def storage_options_of(call: Call, table: Table, body: Fields | None = None) -> dict[str, str] | None:
    """Storage options for the client. Clients that need them do not ask, so only `false` disables them."""
    if body is not None and body.flag("vend_credentials") is False:
        return None
    return dict(call.operations.tables.storage_options(call.caller, table)) or None


def table_point(fields: Fields) -> TablePoint:
    return TablePoint(fields.integer("version", 0), fields.text("tag") or None, fields.text("branch") or None)


def version_entry(fields: Fields) -> VersionEntry:
    scheme = (fields.text("naming_scheme") or "").upper() or None
    if scheme not in (None, "V1", "V2"):
        raise InvalidInput("naming_scheme", f"must be one of V1, V2, not {scheme!r:.60}")
    return VersionEntry(
        version=fields.required_integer("version", 0),
        manifest_path=fields.required_text("manifest_path"),
        manifest_size=fields.integer("manifest_size", 0),
        e_tag=fields.text("e_tag"),
        naming_scheme=scheme,
        metadata=fields.texts_by_name("metadata") or {},
    )


def version_json(version: TableVersion) -> dict[str, Any]:
    return without_nulls(
        {
            "version": version.version,
            "manifest_path": version.manifest_path,
            "manifest_size": version.manifest_size,
            "e_tag": version.e_tag,
            "timestamp_millis": int(version.created_at.timestamp() * 1000),
            "metadata": dict(version.metadata) or None,
        }
    )


def branch_of(call: Call, fields: Fields) -> str:
    """The branch, from the query where the specification has no body, else from the body."""
    return call.query.get("branch") or fields.text("branch") or MAIN_BRANCH


def table_json(table: Table) -> dict[str, Any]:
    return {
        "location": table.location,
        "properties": dict(table.properties),
        "managed_versioning": True,
    }


def removed_table_json(table: Table) -> dict[str, Any]:
    """A table that was removed from the catalog."""
    return {
        "id": list(table.ident.levels),
        "location": table.location,
        "properties": dict(table.properties),
    }


def summary_json(summary: TableSummary) -> dict[str, int]:
    return {"num_deleted_rows": summary.deleted_rows, "num_fragments": summary.fragments}


def description_json(description: TableDescription, vocabulary: Vocabulary) -> dict[str, Any]:
    """Includes version and schema: to lancedb a table without them has no data."""
    version, schema = description.version, description.schema
    ident = description.table.ident
    return table_json(description.table) | without_nulls(
        {
            "table": ident.name,
            "namespace": list(ident.namespace.levels),
            "version": None if version is None else version.version,
            "schema": None if schema is None else RENDERED.of(schema, vocabulary),
        }
    )


def schema_metadata(description: TableDescription) -> dict[str, str]:
    schema = description.schema
    return {} if schema is None else metadata_json(schema.metadata) or {}


def table_uri(table: Table) -> str:
    location = table.location
    return location if "://" in location else f"file://{quote(location)}"


def _checked_properties(properties: dict[str, str]) -> dict[str, str]:
    if len(properties) > MAX_PROPERTIES:
        raise InvalidInput(
            "properties", f"has {len(properties)} entries; at most {MAX_PROPERTIES} are allowed"
        )
    if "" in properties:
        raise InvalidInput("properties", "contains an empty key; every property needs a name")
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
        > MAX_PROPERTIES_BYTES
    ):
        raise InvalidInput("properties", f"has more than {MAX_PROPERTIES_BYTES:,} bytes")
    return properties


def json_mapping(raw: str | bytes | None, field: str) -> dict[str, str]:
    if not raw:
        return {}
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not a JSON object ({error})") from error
    return {} if value is None else text_mapping(value, field)


def transaction_actions(fields: Fields) -> tuple[TransactionAction, ...]:
    entries = fields.objects("actions")
    if not entries:
        raise InvalidInput("actions", "is empty; it must list at least one action")
    return tuple(_action(entry) for entry in entries)


def transaction_json(transaction: Transaction) -> dict[str, Any]:
    return {"status": transaction.status.value, "properties": dict(transaction.properties)}


def _action(entry: Fields) -> TransactionAction:
    entry.refuse_unknown({*ACTIONS, *SNAKE_CASE_ACTIONS})
    present_keys = [key for key in (*ACTIONS, *SNAKE_CASE_ACTIONS) if entry.has(key)]
    if len(present_keys) != 1:
        raise InvalidInput(entry.name_of("")[:-1], f"must have exactly one of {', '.join(ACTIONS)}")
    action = entry.nested(present_keys[0])
    assert action is not None
    match present_keys[0].replace("_", "").lower():
        case "setstatusaction":
            status = read_choice(TransactionStatus, action.required_text("status"), action.name_of("status"))
            return SetStatus(status)
        case "setpropertyaction":
            value = action.text("value")
            if value is None:
                raise InvalidInput(action.name_of("value"), "is missing; it must be a string")
            return SetProperty(action.required_text("key"), value, action.choice("mode", SetMode.OVERWRITE))
        case _:
            return UnsetProperty(action.required_text("key"), action.choice("mode", UnsetMode.SKIP))
