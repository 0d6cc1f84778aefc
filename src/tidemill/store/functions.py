"""Functions as rows, each in its envelope."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import Function, decode_envelope, encode_envelope
from tidemill.store.columns import DatabaseTime
from tidemill.store.schema import functions


class SqlFunctionRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, function: Function, registered_by: str) -> None:
        if self._find_envelope(function.digest) is not None:
            return
        row = {
            "digest": function.digest,
            "name": function.name,
            "envelope": encode_envelope(function),
            "registered_by": registered_by,
            "registered_at": DatabaseTime(),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(functions).values(row))
        except IntegrityError:
            # Somebody registered the same digest in the meantime, and a digest says what it is.
            return

    def get(self, digest: str) -> Function:
        envelope = self._find_envelope(digest)
        if envelope is None:
            raise FunctionNotFound(digest)
        return decode_envelope(envelope, "function")

    def list_all(self) -> Sequence[Function]:
        query = select(functions.c.envelope).order_by(
            functions.c.name, functions.c.registered_at, functions.c.digest
        )
        return [decode_envelope(envelope, "function") for envelope in self._connection.scalars(query)]

    def _find_envelope(self, digest: str) -> bytes | None:
        return self._connection.scalar(select(functions.c.envelope).where(functions.c.digest == digest))
