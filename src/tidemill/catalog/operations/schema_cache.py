"""A cache of the schemas of table versions."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final

import pyarrow as pa

from tidemill.catalog.model.tables import Table, TableVersion
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.ports import TableData

MAX_FIELDS: Final = 200_000


class SchemaCache:
    """A committed version never changes, so its schema is read once. Evicts the oldest entries."""

    def __init__(self, data: TableData, max_fields: int = MAX_FIELDS) -> None:
        self._data = data
        self._max_fields = max_fields
        self._schemas: dict[Hashable, pa.Schema] = {}
        self._fields = 0
        self._lock = threading.Lock()

    def of(self, table: Table, version: TableVersion) -> pa.Schema:
        # A version number can be reused by another commit, so the number alone is not enough.
        key = (
            version.table_id,
            version.branch,
            version.version,
            version.staged_path,
            version.created_at,
        )
        schema = self._schemas.get(key)
        if schema is None:
            may_block()
            schema = self._data.schema(table, version.version)
            self._add(key, schema)
        return schema

    def _add(self, key: Hashable, schema: pa.Schema) -> None:
        with self._lock:
            if key in self._schemas:
                return
            self._schemas[key] = schema
            self._fields += len(schema) + 1
            while self._fields > self._max_fields:
                oldest = self._schemas.pop(next(iter(self._schemas)))
                self._fields -= len(oldest) + 1
