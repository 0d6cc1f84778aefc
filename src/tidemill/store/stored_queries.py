"""Stored queries as rows; each belongs to the table row that holds its name."""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Connection, insert, select

from tidemill.catalog.errors import StoredQueryNotFound
from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.model.tables import StoredQuery, Table
from tidemill.store.schema import stored_queries


class SqlStoredQueryRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, query: StoredQuery) -> None:
        row = {
            "table_id": query.table.table_id,
            "statement": query.statement,
            "query": {
                "source": list(query.source.levels),
                "columns": dict(query.columns),
                "filter": query.filter,
                "limit": query.limit,
            },
            "output": query.output.serialize().to_pybytes(),
        }
        self._connection.execute(insert(stored_queries).values(row))

    def get(self, table: Table) -> StoredQuery:
        row = self._connection.execute(
            select(stored_queries).where(stored_queries.c.table_id == table.table_id)
        ).first()
        if row is None:
            raise StoredQueryNotFound(table.ident)
        return StoredQuery(
            table=table,
            statement=row.statement,
            source=table_ident(tuple(row.query["source"])),
            columns=row.query["columns"],
            filter=row.query["filter"],
            limit=row.query["limit"],
            output=pa.ipc.read_schema(pa.py_buffer(row.output)),
        )
