"""Updates that add, remove and select the schemas of a table."""

from __future__ import annotations

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.ids import id_of, next_id
from tidemill.iceberg.metadata.json_fields import get_field, get_int, get_ints, get_object
from tidemill.iceberg.metadata.schemas import check_version, get_columns, same_schema, stored_schema
from tidemill.iceberg.metadata.table_builder import SCHEMA, TableBuilder, set_current_id
from tidemill.iceberg.model.entries import Document


def check_add_schema(update: Document, where: str) -> None:
    path = f"{where}.schema"
    get_columns(get_object(get_field(update, "schema", where), path), path)


def add_schema(builder: TableBuilder, update: Document) -> None:
    """Assigns the id; an identical existing schema counts as added, so a retry succeeds."""
    schema = update["schema"]
    columns = get_columns(schema, "schema")
    check_version(columns, builder.version)
    last_column_id = max(columns, default=0)
    if last_column_id > builder.document["last-column-id"]:
        builder.put("last-column-id", last_column_id)
    schemas = builder.document["schemas"]
    known = next((known for known in schemas if same_schema(known, schema)), None)
    if known is not None:
        builder.last_schema_id = id_of(known, "schema-id")
        return
    ids = [id_of(known, "schema-id") for known in schemas]
    builder.last_schema_id = next_id(ids, builder.document["current-schema-id"], "schema-id")
    builder.put("schemas", [*schemas, stored_schema(schema, builder.last_schema_id)])


def check_set_current_schema(update: Document, where: str) -> None:
    get_int(update, "schema-id", where)


def set_current_schema(builder: TableBuilder, update: Document) -> None:
    set_current_id(builder, SCHEMA, update["schema-id"], builder.last_schema_id)


def check_remove_schemas(update: Document, where: str) -> None:
    get_ints(update, "schema-ids", where)


def remove_schemas(builder: TableBuilder, update: Document) -> None:
    removed = set(update["schema-ids"])
    if builder.document["current-schema-id"] in removed:
        raise InvalidMetadata("Cannot remove the current schema")
    schemas = builder.document["schemas"]
    remaining = [schema for schema in schemas if id_of(schema, "schema-id") not in removed]
    if len(remaining) < len(schemas):
        builder.put("schemas", remaining)
