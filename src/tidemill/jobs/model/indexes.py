"""Index types and parameters, and the indexes of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from tidemill.errors import InvalidInput

SUCCEEDED: Final = "SUCCEEDED"
PENDING: Final = "PENDING"


class IndexType(StrEnum):
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"
    IVF_RQ = "IVF_RQ"
    IVF_HNSW_FLAT = "IVF_HNSW_FLAT"
    IVF_HNSW_PQ = "IVF_HNSW_PQ"
    IVF_HNSW_SQ = "IVF_HNSW_SQ"
    BTREE = "BTREE"
    BITMAP = "BITMAP"
    LABEL_LIST = "LABEL_LIST"
    FTS = "FTS"
    NGRAM = "NGRAM"
    ZONEMAP = "ZONEMAP"
    BLOOMFILTER = "BLOOMFILTER"
    RTREE = "RTREE"

    @property
    def is_vector(self) -> bool:
        return self.value.startswith("IVF_")


ALIASES: Final[Mapping[str, IndexType]] = {
    "VECTOR": IndexType.IVF_PQ,
    "SCALAR": IndexType.BTREE,
    "INVERTED": IndexType.FTS,
    "HNSW_PQ": IndexType.IVF_HNSW_PQ,
    "HNSW_SQ": IndexType.IVF_HNSW_SQ,
    "HNSW_FLAT": IndexType.IVF_HNSW_FLAT,
}

PARTITION_PARAMETERS: Final = frozenset(
    {"distance_type", "num_partitions", "target_partition_size", "sample_rate", "max_iterations"}
)
GRAPH_PARAMETERS: Final = frozenset({"m", "ef_construction"})
TEXT_PARAMETERS: Final = frozenset(
    {
        "with_position",
        "base_tokenizer",
        "language",
        "max_token_length",
        "lower_case",
        "stem",
        "remove_stop_words",
        "ascii_folding",
        # These are in lancedb's clients, but not in the specification.
        "block_size",
        "custom_stop_words",
        "index_operators",
        "lance_tokenizer",
        "max_ngram_length",
        "min_ngram_length",
        "prefix_only",
        "preserve_original",
        "split_identifiers",
        "split_on_numerics",
    }
)
QUANTIZER_PARAMETERS: Final[Mapping[IndexType, frozenset[str]]] = {
    IndexType.IVF_PQ: frozenset({"num_sub_vectors", "num_bits"}),
    IndexType.IVF_HNSW_PQ: frozenset({"num_sub_vectors", "num_bits"}),
    IndexType.IVF_SQ: frozenset({"num_bits"}),
    IndexType.IVF_HNSW_SQ: frozenset({"num_bits"}),
    IndexType.IVF_RQ: frozenset({"num_bits"}),
}


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """An index to build. `parameters` are those the client sent, with the names of the specification."""

    name: str
    column: str
    index_type: IndexType
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_replacement: bool = False


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index of a table at one version. While it is being built, the counts are None."""

    name: str
    uuid: str
    columns: tuple[str, ...]
    index_type: str
    status: str = SUCCEEDED
    type_url: str | None = None
    indexed_rows: int | None = None
    unindexed_rows: int | None = None
    size_bytes: int | None = None
    segments: int | None = None
    created_at: datetime | None = None
    index_version: int | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    index_type: str
    indexed_rows: int
    unindexed_rows: int
    indices: int
    distance_type: str | None = None


def index_type_of(name: str, field: str) -> IndexType:
    """Reads the name of an index type, or one of the aliases that clients use, in any case."""
    upper_name = name.upper()
    if upper_name in ALIASES:
        return ALIASES[upper_name]
    try:
        return IndexType(upper_name)
    except ValueError as error:
        raise InvalidInput(field, f"must be one of {', '.join(IndexType)}, not {name!r:.60}") from error


def known_parameters(index_type: IndexType) -> frozenset[str]:
    if index_type is IndexType.FTS:
        return TEXT_PARAMETERS
    if not index_type.is_vector:
        return frozenset()
    graph = GRAPH_PARAMETERS if "HNSW" in index_type else frozenset[str]()
    return PARTITION_PARAMETERS | graph | QUANTIZER_PARAMETERS.get(index_type, frozenset())
