"""Partition specs: validation, and the updates that add, remove and select them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import (
    FIRST_PARTITION_ID,
    SPEC,
    TableBuilder,
    set_current_id,
    with_field_ids,
)
from tidemill.iceberg.metadata.json_fields import (
    find_int,
    get_field,
    get_int,
    get_ints,
    get_list,
    get_object,
    get_string,
    id_of,
    next_id,
)
from tidemill.iceberg.metadata.schemas import current_columns
from tidemill.iceberg.metadata.types import (
    VOID,
    Column,
    can_transform,
    canonical_transform,
    check_transform,
    get_sources,
    with_fresh_sources,
)
from tidemill.iceberg.model.entries import Document


def check_spec(spec: Document, where: str) -> None:
    find_int(spec, "spec-id", where)
    check_spec_fields(get_list(get_field(spec, "fields", where), f"{where}.fields"), f"{where}.fields")


def check_spec_fields(fields: list[Any], where: str) -> None:
    for index, raw in enumerate(fields):
        path = f"{where}[{index}]"
        field = get_object(raw, path)
        get_string(field, "name", path)
        check_transform(field, path)
        get_sources(field, path)
        if "field-id" in field:
            get_int(field, "field-id", path)
    missing = sum("field-id" not in field for field in fields)
    if missing not in (0, len(fields)):
        raise InvalidMetadata(
            f"Cannot parse spec with missing field IDs: {missing} missing of {len(fields)} fields."
        )


def fresh_spec(spec: Document, fresh_ids: Mapping[int, int], columns: Mapping[int, Column]) -> Document:
    """The spec of a new table; `fresh_ids` maps the client's column ids to the assigned ones."""
    fields = []
    for index, field in enumerate(spec["fields"]):
        for source in get_sources(field, "partition-spec"):
            if source not in fresh_ids:
                raise InvalidMetadata(f"Cannot find source column for partition field: {_described(field)}")
        renewed = with_fresh_sources(_canonical(field), fresh_ids, "partition-spec")
        fields.append({**renewed, "field-id": FIRST_PARTITION_ID + index})
    result = {**spec, "spec-id": 0, "fields": fields}
    _check_names(result)
    check_spec_columns(result, columns)
    return result


def check_spec_columns(spec: Document, columns: Mapping[int, Column]) -> None:
    """Checks that source columns exist and that the transforms accept their types."""
    names = {column.name: column.field_id for column in columns.values()}
    for field in spec["fields"]:
        sources = get_sources(field, "spec")
        namesake = names.get(field["name"])
        if namesake is not None and namesake not in sources and sources[0] in columns:
            raise InvalidMetadata(
                f"Cannot create identity partition sourced from different field in schema: {field['name']}"
            )
        if canonical_transform(field["transform"]) == VOID:
            continue
        for source in sources:
            _check_source(field, columns.get(source), columns)


def check_add_spec(update: Document, where: str) -> None:
    path = f"{where}.spec"
    check_spec(get_object(get_field(update, "spec", where), path), path)


def add_spec(builder: TableBuilder, update: Document) -> None:
    """Assigns the id; an identical existing spec counts as added, so a retry succeeds."""
    columns = current_columns(builder)
    if columns is None:
        raise InvalidMetadata("Cannot add a partition spec before a schema is added")
    specs = builder.document["partition-specs"]
    fields = [_canonical(field) for field in update["spec"]["fields"]]
    spec = {**update["spec"], "fields": fields}
    check_spec_columns(spec, columns)
    _check_names(spec)
    known = next((known for known in specs if _are_same_fields(known["fields"], fields)), None)
    if known is not None:
        builder.last_spec_id = id_of(known, "spec-id")
        return
    spec["fields"] = _with_ids(builder, fields)
    _check_ids(builder, spec)
    builder.last_spec_id = next_id((id_of(known, "spec-id") for known in specs), 0, "spec-id")
    builder.put("partition-specs", [*specs, {**spec, "spec-id": builder.last_spec_id}])
    ids = [field["field-id"] for field in spec["fields"]]
    builder.put("last-partition-id", max([builder.document["last-partition-id"], *ids]))


def check_set_default_spec(update: Document, where: str) -> None:
    get_int(update, "spec-id", where)


def set_default_spec(builder: TableBuilder, update: Document) -> None:
    set_current_id(builder, SPEC, update["spec-id"], builder.last_spec_id)


def check_remove_specs(update: Document, where: str) -> None:
    get_ints(update, "spec-ids", where)


def remove_specs(builder: TableBuilder, update: Document) -> None:
    removed = set(update["spec-ids"])
    if builder.document["default-spec-id"] in removed:
        raise InvalidMetadata("Cannot remove the default partition spec")
    specs = builder.document["partition-specs"]
    remaining = [spec for spec in specs if id_of(spec, "spec-id") not in removed]
    if len(remaining) < len(specs):
        builder.put("partition-specs", remaining)


def _canonical(field: Document) -> Document:
    return {**field, "transform": canonical_transform(field["transform"])}


def _are_same_fields(left: list[Document], right: list[Document]) -> bool:
    return [_comparable(field) for field in left] == [_comparable(field) for field in right]


def _comparable(field: Document) -> Document:
    bare = {key: value for key, value in field.items() if key != "field-id" and value is not None}
    return {**bare, "transform": canonical_transform(field["transform"])}


def _with_ids(builder: TableBuilder, fields: list[Document]) -> list[Document]:
    """A field without an id reuses the id of the same field in another spec, or gets the next free one."""
    if builder.version == 1 or all("field-id" in field for field in fields):
        return with_field_ids(fields)
    known_ids: dict[tuple[tuple[int, ...], str], int] = {}
    for spec in builder.document["partition-specs"]:
        for field in with_field_ids(spec["fields"]):
            known_ids.setdefault(_source_key(field), field["field-id"])
    last = builder.document["last-partition-id"]
    result = []
    for field in fields:
        # Each id is used once: a spec may contain the same source and transform under two names.
        known = known_ids.pop(_source_key(field), None)
        if known is None:
            last = next_id([last], FIRST_PARTITION_ID, "field-id")
        result.append({**field, "field-id": last if known is None else known})
    return result


def _source_key(field: Document) -> tuple[tuple[int, ...], str]:
    return tuple(get_sources(field, "spec")), canonical_transform(field["transform"])


def _check_names(spec: Document) -> None:
    names: set[str] = set()
    for field in spec["fields"]:
        if not field["name"]:
            raise InvalidMetadata(f"Cannot use empty partition name: {_described(field)}")
        if field["name"] in names:
            raise InvalidMetadata(f"Cannot use partition name more than once: {field['name']}")
        names.add(field["name"])


def _check_ids(builder: TableBuilder, spec: Document) -> None:
    ids = [field["field-id"] for field in spec["fields"]]
    if len(set(ids)) < len(ids):
        raise InvalidMetadata(f"Cannot use partition field ID more than once: {ids}")
    if builder.version == 1 and ids != list(range(FIRST_PARTITION_ID, FIRST_PARTITION_ID + len(ids))):
        raise InvalidMetadata(f"Spec does not use sequential IDs that are required in v1: {ids}")


def _check_source(field: Document, column: Column | None, columns: Mapping[int, Column]) -> None:
    if column is None:
        raise InvalidMetadata(f"Cannot find source column for partition field: {_described(field)}")
    if not column.is_primitive:
        raise InvalidMetadata(f"Cannot partition by non-primitive source field: {column.kind}")
    transform = canonical_transform(field["transform"])
    if not can_transform(transform, column):
        raise InvalidMetadata(f"Invalid source type {column.kind} for transform: {transform}")
    parent = columns.get(column.parent) if column.parent is not None else None
    while parent is not None:
        if parent.kind != "struct":
            raise InvalidMetadata(f"Invalid partition field parent: {parent.kind}")
        parent = columns.get(parent.parent) if parent.parent is not None else None


def _described(field: Document) -> str:
    sources = ", ".join(str(source) for source in get_sources(field, "spec"))
    return f"{field.get('field-id')}: {field['name']}: {field['transform']}({sources})"
