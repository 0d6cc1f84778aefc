"""Partitions the rows of a table by an IVF index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import lance
import numpy as np
from lance.dataset import VectorIndexReader

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.stages import Partition

FIELD: Final = "udtf_spec.partition_by_indexed_column"
# The partition key of rows that are not indexed yet.
UNINDEXED: Final = -1


def index_partitions(ident: TableIdent, dataset: lance.LanceDataset, column: str) -> Sequence[Partition]:
    """One partition per non-empty IVF partition, and one for the rows that are not indexed yet."""
    reader = VectorIndexReader(dataset, _index_of(ident, dataset, column))
    live = dataset.scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_numpy()
    unassigned = row_set(np.sort(live))
    partitions: list[Partition] = []
    for number in range(reader.num_partitions()):
        ids = reader.read_partition(number)["_rowid"].to_numpy()
        rows = row_set(np.sort(ids)) & unassigned
        unassigned -= rows
        if rows:
            partitions.append(Partition(number, f"partition {number} of {column}", rows))
    if unassigned:
        partitions.append(Partition(UNINDEXED, f"rows not yet in the index of {column}", unassigned))
    return partitions


def _index_of(ident: TableIdent, dataset: lance.LanceDataset, column: str) -> str:
    if column not in dataset.schema.names:
        raise InvalidInput(FIELD, f"{ident} has no column {column!r:.60}; it has {dataset.schema.names}")
    indexes = [index for index in dataset.list_indices() if index["fields"] == [column]]
    for index in indexes:
        if str(index["type"]).startswith("IVF"):
            return str(index["name"])
    existing = ", ".join(sorted(str(index["type"]) for index in indexes)) or "no index"
    raise InvalidInput(FIELD, f"{column!r:.60} of {ident} has {existing}; an IVF index is needed")
