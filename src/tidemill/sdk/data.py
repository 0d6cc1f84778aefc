"""Rows in the forms users have them, as streams of Arrow batches."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

ACCEPTED: Final = (
    "an Arrow Table, RecordBatch or reader, a pandas or polars DataFrame, a list of dicts, "
    "or the path of a Parquet file or folder"
)


def as_reader(data: Any, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """The rows of `data`; `schema` gives the types of columns where the data itself does not."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, str | Path):
        return _parquet([data])
    if isinstance(data, Mapping):
        return _table({name: list(values) for name, values in data.items()}, schema).to_reader()
    if isinstance(data, list | tuple):
        return _sequence(data, schema)
    table = _frame(data)
    if table is not None:
        return table.to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise TypeError(f"a {type(data).__qualname__} is not tabular data; give {ACCEPTED}")


def stream_bytes(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """The reader's rows as pieces of an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield _take(sink)
    yield _take(sink)


def _take(sink: io.BytesIO) -> bytes:
    content = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return content


def _frame(data: Any) -> pa.Table | None:
    """A table of a pandas or polars frame; whoever has one has imported the library."""
    if isinstance(data, pa.Table):
        return data
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if polars is not None and isinstance(data, polars.LazyFrame):
        data = data.collect()
    if polars is not None and isinstance(data, polars.DataFrame):
        # Newer levels have string views, which tables on storage do not.
        return data.to_arrow(compat_level=polars.CompatLevel.oldest())
    return None


def _sequence(data: Sequence[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    if data and all(isinstance(item, str | Path) for item in data):
        return _parquet(data)
    if data and all(isinstance(item, pa.RecordBatch) for item in data):
        return pa.Table.from_batches(data).to_reader()
    for index, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {index} is a {type(row).__qualname__}, not a dict; give {ACCEPTED}")
    if not data and schema is None:
        raise ValueError("an empty list has no columns; give an empty Arrow table with a schema")
    if not data:
        return pa.RecordBatchReader.from_batches(schema, [])
    names = dict.fromkeys(name for row in data for name in row)
    return _table({name: [row.get(name) for row in data] for name in names}, schema).to_reader()


def _table(columns: Mapping[str, Iterable[Any]], schema: pa.Schema | None) -> pa.Table:
    arrays = {name: _array(name, values, schema) for name, values in columns.items()}
    if not arrays:
        raise ValueError("the rows have no columns")
    return pa.table(arrays)


def _array(name: str, values: Iterable[Any], schema: pa.Schema | None) -> pa.Array:
    if schema is not None and name not in schema.names:
        raise ValueError(f"there is no column '{name}'; the columns are {', '.join(schema.names)}")
    wanted = schema.field(name).type if schema is not None else None
    try:
        array = pa.array(values, wanted)
    except pa.ArrowException as error:
        hint = f"as {wanted}" if wanted is not None else "with one Arrow type"
        raise ValueError(f"column '{name}' cannot be read {hint}: {error}") from error
    if pa.types.is_null(array.type):
        raise ValueError(
            f"column '{name}' has only nulls, so it has no type; give an Arrow table with a schema"
        )
    return array


def _parquet(paths: Sequence[str | Path]) -> pa.RecordBatchReader:
    missing = [str(path) for path in paths if not Path(path).exists()]
    if missing:
        raise FileNotFoundError(f"there is no Parquet file or folder {', '.join(missing)}")
    source = [str(path) for path in paths] if len(paths) > 1 else str(paths[0])
    try:
        return _datasets().dataset(source, format="parquet").scanner().to_reader()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{source} cannot be read as Parquet: {error}") from error


def _datasets() -> Any:
    """Arrow's datasets bring pandas along, which takes a second and is needed for Parquet only."""
    return importlib.import_module("pyarrow.dataset")
