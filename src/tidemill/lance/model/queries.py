"""Queries on the rows of a table: filters, nearest neighbours, full-text search, order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TypeAlias

import pyarrow as pa

from tidemill.catalog.model.tables import MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class TextSearch:
    """Words to search for in these columns. Without columns: in all that have a full-text index."""

    text: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextMatch:
    """With `fuzziness` None, the length of each word determines it."""

    terms: str
    column: str | None = None
    boost: float = 1.0
    fuzziness: int | None = 0
    max_expansions: int = 50
    needs_all_terms: bool = False
    prefix_length: int = 0


@dataclass(frozen=True, slots=True)
class TextPhrase:
    terms: str
    column: str | None = None
    slop: int = 0


@dataclass(frozen=True, slots=True)
class TextMultiMatch:
    """Several matches, of which the best one counts."""

    matches: tuple[TextMatch, ...]


@dataclass(frozen=True, slots=True)
class TextBoost:
    """Ranks rows that also match `negative` lower."""

    positive: TextQuery
    negative: TextQuery
    negative_boost: float = 0.5


@dataclass(frozen=True, slots=True)
class TextBoolean:
    must: tuple[TextQuery, ...] = ()
    should: tuple[TextQuery, ...] = ()
    must_not: tuple[TextQuery, ...] = ()


TextQuery: TypeAlias = TextMatch | TextPhrase | TextMultiMatch | TextBoost | TextBoolean


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """Nearest neighbours of each of the vectors. None means Lance's default.

    `candidates` is the number of candidates an HNSW index considers.
    """

    vectors: tuple[tuple[float, ...], ...]
    column: str | None = None
    distance_type: str | None = None
    minimum_probes: int | None = None
    maximum_probes: int | None = None
    refine_factor: int | None = None
    candidates: int | None = None
    approximation: str | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    uses_index: bool = True


@dataclass(frozen=True, slots=True)
class RowOrder:
    column: str
    is_ascending: bool = True
    has_nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query on rows. With several vectors, `limit` applies to each vector."""

    limit: int | None = None
    offset: int | None = None
    filter: str | None = None
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    version: int | None = None
    branch: str = MAIN_BRANCH
    with_row_id: bool = False
    vector: VectorSearch | None = None
    full_text: TextSearch | TextQuery | None = None
    prefilter: bool = True
    only_indexed: bool = False
    order: tuple[RowOrder, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of one version as an Arrow file: its bytes, or an open file, to be read once, if it is large."""

    version: int
    content: bytes | memoryview | IO[bytes]

    def to_table(self) -> pa.Table:
        if isinstance(self.content, bytes | memoryview):
            return pa.ipc.open_file(pa.py_buffer(self.content)).read_all()
        with self.content as file:
            return pa.ipc.open_file(file).read_all()
