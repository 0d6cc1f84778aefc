"""Translation of namespaces, tables and versions between the Lance protocol and the core."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson

from tidemill.catalog.model.tables import (
    MAIN_BRANCH,
    Table,
    TableDescription,
    TableVersion,
    VersionEntry,
)
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.http.responses import without_nulls
from tidemill.protocols.lance.arrow_json import Vocabulary, metadata_json, schema_json

PROPERTIES_HEADER = "x-lance-table-properties"
LOCATION_HEADER = "x-lance-table-location"


def table_properties(call: Call) -> dict[str, str]:
    """A new table's properties: JSON in the query, or in the header that older clients use."""
    raw = call.query.get("properties") or call.headers.get(PROPERTIES_HEADER)
    return _json_mapping(raw, "properties")


def refuse_chosen_storage(call: Call) -> None:
    """Where data goes and how it is reached is the server's choice."""
    if call.query.get("location") or call.headers.get(LOCATION_HEADER):
        raise Unsupported("location: choosing the location of a table is not supported; leave it out")
    if _json_mapping(call.query.get("storage_options"), "storage_options"):
        raise Unsupported("storage_options: are set by the server; leave them out")


def version_entry(fields: Fields) -> VersionEntry:
    scheme = (fields.text("naming_scheme") or "V2").upper()
    if scheme not in ("V1", "V2"):
        raise InvalidInput("naming_scheme", f"{scheme!r:.60} is none of V1, V2")
    return VersionEntry(
        version=fields.required_integer("version", 1),
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
    """The query names the branch where the specification has no body, the body everywhere else."""
    return call.query.get("branch") or fields.text("branch") or MAIN_BRANCH


def table_json(table: Table) -> dict[str, Any]:
    return {
        "location": table.location,
        "properties": dict(table.properties),
        "managed_versioning": True,
    }


def description_json(description: TableDescription, vocabulary: Vocabulary) -> dict[str, Any]:
    """Version and schema are not left out: lancedb takes a table without them for one that has no data."""
    version, schema = description.version, description.schema
    ident = description.table.ident
    return table_json(description.table) | without_nulls(
        {
            "table": ident.name,
            "namespace": list(ident.namespace.levels),
            "version": None if version is None else version.version,
            "schema": None if schema is None else schema_json(schema, vocabulary),
        }
    )


def schema_metadata(description: TableDescription) -> dict[str, str]:
    schema = description.schema
    return {} if schema is None else metadata_json(schema.metadata) or {}


def table_uri(table: Table) -> str:
    location = table.location
    return location if "://" in location else f"file://{quote(location)}"


def _json_mapping(raw: str | None, field: str) -> dict[str, str]:
    if not raw:
        return {}
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not a JSON object ({error})") from error
    return {} if value is None else text_mapping(value, field)
