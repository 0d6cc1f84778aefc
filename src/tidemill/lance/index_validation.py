"""Builds indexes with pylance, and tries a definition on a few rows before a job is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
from lance.progress import IndexProgress

from tidemill.catalog.model.indexes import IndexDefinition, IndexType
from tidemill.errors import InvalidInput

DISTANCE_TYPES: Final = ("l2", "cosine", "dot", "hamming")
QUANTIZER_BITS: Final = (4, 8)
TRIAL_ROWS: Final = 32
TRIAL_COLUMN: Final = "rehearsed"
# Training a product quantizer is slow and needs hundreds of rows, so the trial uses a flat index instead.
TRIAL_TYPES: Final[Mapping[IndexType, IndexType]] = {
    IndexType.IVF_PQ: IndexType.IVF_FLAT,
    IndexType.IVF_HNSW_PQ: IndexType.IVF_HNSW_FLAT,
}
PYLANCE_NAMES: Final[Mapping[str, str]] = {"max_iterations": "max_iters", "distance_type": "metric"}


def validate_definition(definition: IndexDefinition, field: pa.Field) -> None:
    """Builds the index in memory on rows of the column's type. Raises InvalidInput or Lance's own errors."""
    if definition.index_type.is_vector:
        _check_vector_parameters(definition, field)
    index_type = TRIAL_TYPES.get(definition.index_type, definition.index_type)
    parameters = {
        key: value
        for key, value in definition.parameters.items()
        if index_type is definition.index_type or key not in ("num_sub_vectors", "num_bits")
    }
    if "num_partitions" in parameters:
        parameters["num_partitions"] = 1
    trial = replace(definition, column=TRIAL_COLUMN, index_type=index_type, parameters=parameters)
    column = pa.field(TRIAL_COLUMN, field.type, metadata=field.metadata)
    rows = pa.table([_values(column.type)], schema=pa.schema([column]))
    create_index(lance.write_dataset(rows, f"memory://{uuid4()}"), trial, column, None)


def create_index(
    dataset: lance.LanceDataset,
    definition: IndexDefinition,
    field: pa.Field,
    on_progress: Callable[[IndexProgress], None] | None,
) -> None:
    """Builds and commits an index; the definition's column must be the canonical path of the field."""
    options: dict[str, Any] = {
        PYLANCE_NAMES.get(key, key): value for key, value in definition.parameters.items()
    }
    if on_progress is not None:
        options["progress_callback"] = on_progress
    if not definition.index_type.is_vector:
        dataset.create_scalar_index(
            definition.column,
            definition.index_type.value,  # type: ignore[arg-type]  # pylance wants literals
            definition.name,
            replace=definition.is_replacement,
            **options,
        )
        return
    if definition.index_type in TRIAL_TYPES:
        options.setdefault("num_sub_vectors", _default_sub_vectors(dimension_of(field)))
    dataset.create_index(
        definition.column,
        definition.index_type.value,
        definition.name,
        replace=definition.is_replacement,
        **options,
    )


def needed_rows(definition: IndexDefinition) -> int:
    """Number of rows with a value that are needed to train the index."""
    if not definition.index_type.is_vector:
        return 0
    if definition.index_type in TRIAL_TYPES:
        return 1 << int(definition.parameters.get("num_bits", 8))
    return 1


def dimension_of(field: pa.Field) -> int:
    """The dimension of a column of vectors, or of lists of vectors. Raises InvalidInput."""
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_list(data_type):
        data_type = data_type.value_type
    if not pa.types.is_fixed_size_list(data_type):
        raise InvalidInput(
            "column", f"'{field.name}' is {field.type}; a vector index needs a fixed-size list"
        )
    return int(data_type.list_size)


def _check_vector_parameters(definition: IndexDefinition, field: pa.Field) -> None:
    parameters = definition.parameters
    dimension, sub_vectors = dimension_of(field), parameters.get("num_sub_vectors")
    if sub_vectors is not None and dimension % sub_vectors:
        raise InvalidInput(
            "num_sub_vectors", f"{sub_vectors} does not divide {dimension}, the dimension of the vectors"
        )
    if parameters.get("distance_type", "l2") not in DISTANCE_TYPES:
        raise InvalidInput(
            "distance_type", f"{parameters['distance_type']!r:.60} is none of {', '.join(DISTANCE_TYPES)}"
        )
    if definition.index_type in TRIAL_TYPES and parameters.get("num_bits", 8) not in QUANTIZER_BITS:
        raise InvalidInput("num_bits", f"{parameters['num_bits']} is not 4 or 8, the supported sizes")


def _default_sub_vectors(dimension: int) -> int:
    """Chooses like lancedb: 16 values per sub-vector are fast, 8 are acceptable, one sub-vector is slow."""
    for width in (16, 8):
        if dimension % width == 0:
            return dimension // width
    return 1


def _values(data_type: pa.DataType) -> pa.Array:
    """Vectors to train with; for any other type one null is enough."""
    inner = data_type.value_type if pa.types.is_list(data_type) else data_type
    if not pa.types.is_fixed_size_list(inner):
        return pa.nulls(1, data_type)
    count = TRIAL_ROWS * inner.list_size
    numbers = pa.array(np.arange(count) * 7919 % 251, pa.int64()).cast(inner.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=inner)
    if inner is data_type:
        return vectors
    offsets = pa.array(range(TRIAL_ROWS + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, vectors, type=data_type)
