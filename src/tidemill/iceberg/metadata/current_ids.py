"""Sets the current schema, the default partition spec and the default sort order of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.ids import find_by_id
from tidemill.iceberg.metadata.table_builder import TableBuilder

LAST_ADDED: Final = -1


@dataclass(frozen=True, slots=True)
class CurrentId:
    """Keys of the list, of the ids in it, and of the current id; `noun` and `role` are for messages."""

    noun: str
    role: str
    list_key: str
    id_key: str
    current_key: str


SCHEMA: Final = CurrentId("schema", "current", "schemas", "schema-id", "current-schema-id")
SPEC: Final = CurrentId("spec", "default", "partition-specs", "spec-id", "default-spec-id")
ORDER: Final = CurrentId("sort order", "default", "sort-orders", "order-id", "default-sort-order-id")


def set_current_id(builder: TableBuilder, current: CurrentId, wanted: int, last_added: int | None) -> None:
    if wanted == LAST_ADDED:
        if last_added is None:
            raise InvalidMetadata(f"Cannot set last added {current.noun}: no {current.noun} has been added")
        wanted = last_added
    if find_by_id(builder.document[current.list_key], current.id_key, wanted) is None:
        raise InvalidMetadata(f"Cannot set {current.role} {current.noun} to unknown {current.noun}: {wanted}")
    if wanted != builder.document[current.current_key]:
        builder.put(current.current_key, wanted)
        builder.has_new_current_ids = True
