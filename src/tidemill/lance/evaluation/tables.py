"""What work sees of the tables: opens versions, and collects the rows of a result in a bounded file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, Final

import lance
import pyarrow as pa

from tidemill.catalog.errors import TableVersionNotFound
from tidemill.catalog.model.tables import Table
from tidemill.lance.datasets import check_bases, translated
from tidemill.lance.evaluation.bounds import MIB, result_exceeded

IN_MEMORY_BYTES: Final = 16 * MIB
MISSING_MANIFEST: Final = ".manifest was not found"


class Tables:
    """Opens versions that are known to exist, with caches of its own."""

    def __init__(self, session: Any, result_bytes: int) -> None:
        self._session = session
        self.result_bytes = result_bytes

    def open(self, table: Table, version: int) -> lance.LanceDataset:
        """Raises TableVersionNotFound if it has been removed since it was known to exist."""
        with translated(table.ident):
            try:
                opened = lance.dataset(table.data_location, version=version, session=self._session)
            except ValueError as error:
                if MISSING_MANIFEST in str(error):
                    raise TableVersionNotFound(table.ident, version) from error
                raise
        check_bases(table, opened)
        return opened

    def arrow_file(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> memoryview | IO[bytes]:
        """An Arrow file of the batches: its bytes, or an open file if it is large. Raises BoundExceeded."""
        first, is_all = _first_batches(batches)
        if is_all:
            buffer = pa.BufferOutputStream()
            self._write(buffer, schema, first)
            return memoryview(buffer.getvalue()).toreadonly()
        file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever sends it closes it
        try:
            self._write(pa.PythonFile(file, "w"), schema, chain(first, batches))
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def _write(self, sink: pa.NativeFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        with pa.ipc.new_file(sink, schema, options=options) as writer:
            if any(_has_dictionary(field.type) for field in schema):
                # A file has one dictionary per column, but batches may have different ones.
                writer.write_table(pa.Table.from_batches(batches, schema))
            else:
                for batch in batches:
                    writer.write_batch(batch)
                    self._check_size(sink)
        self._check_size(sink)

    def _check_size(self, sink: pa.NativeFile) -> None:
        if sink.tell() > self.result_bytes:
            raise result_exceeded(self.result_bytes)


def _first_batches(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """The batches that stay in memory, and whether they are all."""
    first: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        first.append(batch)
        size += batch.nbytes
        if size > IN_MEMORY_BYTES:
            return first, False
    return first, True


def _has_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    return any(_has_dictionary(data_type.field(index).type) for index in range(data_type.num_fields))
