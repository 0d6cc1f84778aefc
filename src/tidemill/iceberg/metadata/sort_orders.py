"""Sort orders: validation, and the updates that add and select them."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import ORDER, UNSORTED, TableBuilder, set_current_id
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    find_int,
    get_field,
    get_int,
    get_object,
    get_objects,
    get_string,
    next_id,
)
from tidemill.iceberg.metadata.schemas import current_columns
from tidemill.iceberg.metadata.types import (
    Column,
    can_transform,
    canonical_transform,
    check_transform,
    get_sources,
    with_fresh_sources,
)
from tidemill.iceberg.model.entries import Document


def check_order(order: Document, where: str) -> None:
    order_id = find_int(order, "order-id", where)
    fields = get_objects(order, "fields", where)
    if not fields and order_id not in (None, 0):
        raise InvalidMetadata(f"Unsorted order ID must be 0: {where}.order-id")
    if fields and order_id == 0:
        raise InvalidMetadata(f"Sort order ID 0 is reserved for unsorted order: {where}.order-id")
    for index, field in enumerate(fields):
        path = f"{where}.fields[{index}]"
        check_transform(field, path)
        get_sources(field, path)
        if get_string(field, "direction", path).lower() not in ("asc", "desc"):
            raise InvalidMetadata(f"Invalid sort direction: {path}: {abbreviated(field['direction'])}")
        if get_string(field, "null-order", path).lower() not in ("nulls-first", "nulls-last"):
            raise InvalidMetadata(f"Unexpected null order: {path}: {abbreviated(field['null-order'])}")


def fresh_order(order: Document, fresh_ids: Mapping[int, int], columns: Mapping[int, Column]) -> Document:
    """The order of a new table; `fresh_ids` maps the client's column ids to the assigned ones."""
    fields = []
    for field in order["fields"]:
        for source in get_sources(field, "write-order"):
            if source not in fresh_ids:
                raise InvalidMetadata(f"Cannot find source column for sort field: {_described(field)}")
        fields.append(with_fresh_sources(_canonical(field), fresh_ids, "write-order"))
    result = {**order, "order-id": 1 if fields else 0, "fields": fields}
    check_order_columns(result, columns)
    return result


def check_order_columns(order: Document, columns: Mapping[int, Column]) -> None:
    """Checks that source columns exist and that the transforms accept their types."""
    for field in order["fields"]:
        for source in get_sources(field, "sort-order"):
            column = columns.get(source)
            if column is None:
                raise InvalidMetadata(f"Cannot find source column for sort field: {_described(field)}")
            if not column.is_primitive:
                raise InvalidMetadata(f"Cannot sort by non-primitive source field: {column.kind}")
            transform = canonical_transform(field["transform"])
            if not can_transform(transform, column):
                raise InvalidMetadata(f"Invalid source type {column.kind} for transform: {transform}")


def check_add_order(update: Document, where: str) -> None:
    path = f"{where}.sort-order"
    check_order(get_object(get_field(update, "sort-order", where), path), path)


def add_order(builder: TableBuilder, update: Document) -> None:
    """Assigns the id; an identical existing order counts as added, so a retry succeeds."""
    columns = current_columns(builder)
    if columns is None:
        raise InvalidMetadata("Cannot add a sort order before a schema is added")
    orders = builder.document["sort-orders"]
    fields = [_canonical(field) for field in update["sort-order"]["fields"]]
    order = {**update["sort-order"], "fields": fields}
    check_order_columns(order, columns)
    known = next(
        (known for known in orders if [_canonical(field) for field in known["fields"]] == fields), None
    )
    if known is not None:
        builder.last_order_id = known["order-id"]
        return
    ids = [known["order-id"] for known in orders]
    builder.last_order_id = next_id(ids, 1, "order-id") if fields else UNSORTED["order-id"]
    builder.put("sort-orders", [*orders, {**order, "order-id": builder.last_order_id}])


def check_set_default_order(update: Document, where: str) -> None:
    get_int(update, "sort-order-id", where)


def set_default_order(builder: TableBuilder, update: Document) -> None:
    set_current_id(builder, ORDER, update["sort-order-id"], builder.last_order_id)


def _canonical(field: Document) -> Document:
    return {
        **field,
        "transform": canonical_transform(field["transform"]),
        "direction": field["direction"].lower(),
        "null-order": field["null-order"].lower(),
    }


def _described(field: Document) -> str:
    sources = ", ".join(str(source) for source in get_sources(field, "sort-order"))
    nulls = field["null-order"].upper().replace("-", " ")
    return f"{field['transform']}({sources}) {field['direction'].upper()} {nulls}"
