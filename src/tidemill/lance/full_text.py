"""Converts full-text queries to pylance's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import lance
import pyarrow as pa
from lance.query import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.lance.field_paths import resolve_path
from tidemill.lance.model.queries import (
    TextBoolean,
    TextBoost,
    TextMatch,
    TextMultiMatch,
    TextPhrase,
    TextQuery,
    TextSearch,
)

FIELD = "full_text_query"


def full_text_query(
    ident: TableIdent, dataset: lance.LanceDataset, query: TextSearch | TextQuery
) -> dict[str, Any] | FullTextQuery:
    """Raises TableColumnNotFound, and InvalidInput for queries that pylance cannot express."""
    if isinstance(query, TextSearch):
        columns = _checked(ident, dataset.schema, query.columns)
        return {"query": query.text, "columns": columns or _indexed_columns(dataset)}
    return _Builder(ident, dataset).build(query)


class _Builder:
    def __init__(self, ident: TableIdent, dataset: lance.LanceDataset) -> None:
        self._ident = ident
        self._dataset = dataset

    def build(self, query: TextQuery) -> FullTextQuery:
        match query:
            case TextMatch():
                return self._match(query)
            case TextPhrase():
                return PhraseQuery(query.terms, self._only_column(query.column), slop=query.slop)
            case TextMultiMatch():
                return self._multi_match(query)
            case TextBoost():
                return BoostQuery(
                    self.build(query.positive),
                    self.build(query.negative),
                    negative_boost=query.negative_boost,
                )
            case TextBoolean():
                return BooleanQuery(list(self._clauses(query)))
            case _:
                assert_never(query)

    def _clauses(self, query: TextBoolean) -> Iterator[tuple[Occur, FullTextQuery]]:
        if not query.must and not query.should:
            raise InvalidInput(f"{FIELD}.boolean", "has to have a query in must or in should")
        for occur, queries in (
            (Occur.MUST, query.must),
            (Occur.SHOULD, query.should),
            (Occur.MUST_NOT, query.must_not),
        ):
            for inner in queries:
                yield occur, self.build(inner)

    def _match(self, query: TextMatch) -> FullTextQuery:
        columns = self._columns(query.column)
        if len(columns) > 1:
            return self._multi_match(TextMultiMatch(tuple(_in_column(query, column) for column in columns)))
        if query.fuzziness != 0 and columns[0] not in _with_index(self._dataset):
            # Without an index, Lance silently searches for exact words.
            raise InvalidInput(f"{FIELD}.match.fuzziness", f"needs a full-text index on '{columns[0]}'")
        return MatchQuery(
            query.terms,
            columns[0],
            boost=query.boost,
            # None is a valid value that pylance's annotation omits.
            fuzziness=query.fuzziness,  # type: ignore[arg-type]
            max_expansions=query.max_expansions,
            operator=_operator(query),
            prefix_length=query.prefix_length,
        )

    def _multi_match(self, query: TextMultiMatch) -> FullTextQuery:
        """pylance accepts one text for all columns and no fuzziness. Raises InvalidInput."""
        first = query.matches[0]
        plain = TextMatch(first.terms, needs_all_terms=first.needs_all_terms)
        for match in query.matches:
            if _in_column(match, None, boost=1.0) != plain:
                raise InvalidInput(
                    f"{FIELD}.multi_match",
                    "can have one text and one operator for all columns, and no fuzziness;"
                    " put different matches into a boolean query",
                )
        return MultiMatchQuery(
            first.terms,
            [self._only_column(match.column) for match in query.matches],
            boosts=[match.boost for match in query.matches],
            operator=_operator(first),
        )

    def _only_column(self, column: str | None) -> str:
        columns = self._columns(column)
        if len(columns) > 1:
            raise InvalidInput(FIELD, f"has to name a column: {', '.join(columns)} have full-text indexes")
        return columns[0]

    def _columns(self, column: str | None) -> list[str]:
        if column is None:
            return _indexed_columns(self._dataset)
        return _checked(self._ident, self._dataset.schema, (column,))


def _in_column(match: TextMatch, column: str | None, boost: float | None = None) -> TextMatch:
    return TextMatch(
        terms=match.terms,
        column=column,
        boost=match.boost if boost is None else boost,
        fuzziness=match.fuzziness,
        max_expansions=match.max_expansions,
        needs_all_terms=match.needs_all_terms,
        prefix_length=match.prefix_length,
    )


def _operator(match: TextMatch) -> FullTextOperator:
    return FullTextOperator.AND if match.needs_all_terms else FullTextOperator.OR


def _checked(ident: TableIdent, schema: pa.Schema, columns: tuple[str, ...]) -> list[str]:
    for column in columns:
        resolve_path(ident, schema, column, FIELD, is_through_lists=True)
    return list(columns)


def _indexed_columns(dataset: lance.LanceDataset) -> list[str]:
    """The columns with a full-text index, searched by default. Raises InvalidInput if there are none."""
    columns = _with_index(dataset)
    if not columns:
        raise InvalidInput(FIELD, "has to name a column, because no column has a full-text index")
    return columns


def _with_index(dataset: lance.LanceDataset) -> list[str]:
    columns = (
        name
        for index in dataset.describe_indices()
        if index.index_type.lower() == "inverted"
        for name in index.field_names
    )
    return list(dict.fromkeys(columns))
