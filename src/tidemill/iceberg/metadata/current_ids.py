"""Of its schemas, partition specs and sort orders a table uses one each: the updates that choose it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.ids import find_by_id
from tidemill.iceberg.metadata.table_builder import TableBuilder

LAST_ADDED: Final = -1


@dataclass(frozen=True, slots=True)
class Choice:
    """Where those there are to choose from stand in a document, and which is chosen."""

    noun: str
    role: str
    listed: str
    id_key: str
    chosen: str


SCHEMA: Final = Choice("schema", "current", "schemas", "schema-id", "current-schema-id")
SPEC: Final = Choice("spec", "default", "partition-specs", "spec-id", "default-spec-id")
ORDER: Final = Choice("sort order", "default", "sort-orders", "order-id", "default-sort-order-id")


def choose(builder: TableBuilder, choice: Choice, wanted: int, last_added: int | None) -> None:
    if wanted == LAST_ADDED:
        if last_added is None:
            raise InvalidMetadata(f"Cannot set last added {choice.noun}: no {choice.noun} has been added")
        wanted = last_added
    if find_by_id(builder.document[choice.listed], choice.id_key, wanted) is None:
        raise InvalidMetadata(f"Cannot set {choice.role} {choice.noun} to unknown {choice.noun}: {wanted}")
    if wanted != builder.document[choice.chosen]:
        builder.put(choice.chosen, wanted)
        builder.has_new_shape = True
