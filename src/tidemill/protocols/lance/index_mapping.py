"""Translates index definitions, listings and statistics."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Final

import orjson

from tidemill.errors import InvalidInput
from tidemill.jobs.model.indexes import (
    IndexDefinition,
    IndexStatistics,
    IndexType,
    TableIndex,
    index_type_of,
    known_parameters,
)
from tidemill.protocols.http.call import without_nulls
from tidemill.protocols.http.fields import Fields

INTEGER_PARAMETERS: Final = frozenset(
    {
        "num_partitions",
        "num_sub_vectors",
        "num_bits",
        "sample_rate",
        "max_iterations",
        "target_partition_size",
        "m",
        "ef_construction",
        "block_size",
        "max_ngram_length",
        "min_ngram_length",
    }
)
FLAG_PARAMETERS: Final = frozenset(
    {
        "with_position",
        "lower_case",
        "stem",
        "remove_stop_words",
        "ascii_folding",
        "index_operators",
        "prefix_only",
        "preserve_original",
        "split_identifiers",
        "split_on_numerics",
    }
)
TEXT_PARAMETERS: Final = frozenset({"distance_type", "base_tokenizer", "language", "lance_tokenizer"})
OTHER_KEYS: Final = frozenset(
    {"identity", "context", "id", "branch", "column", "index_type", "name", "metric_type", "replace"}
)
ALL_PARAMETERS: Final = (
    INTEGER_PARAMETERS | FLAG_PARAMETERS | TEXT_PARAMETERS | {"max_token_length", "custom_stop_words"}
)


def index_definition(fields: Fields, *, replaces_by_default: bool) -> IndexDefinition:
    """`replaces_by_default` applies if the request does not say whether to replace an existing index."""
    fields.refuse_unknown(OTHER_KEYS | ALL_PARAMETERS)
    column = fields.required_text("column")
    index_type = index_type_of(fields.required_text("index_type"), "index_type")
    replace = fields.flag("replace")
    return IndexDefinition(
        name=fields.text("name") or f"{column}_idx",
        column=column,
        index_type=index_type,
        parameters=_parameters(fields, index_type),
        is_replacement=replaces_by_default if replace is None else replace,
    )


def require_scalar(definition: IndexDefinition) -> None:
    if definition.index_type.is_vector:
        raise InvalidInput(
            "index_type", f"{definition.index_type} is a vector index; create it with create_index"
        )


def index_json(index: TableIndex) -> dict[str, Any]:
    created = None if index.created_at is None else index.created_at.astimezone(UTC)
    return without_nulls(
        {
            "index_name": index.name,
            "index_uuid": index.uuid,
            "columns": list(index.columns),
            "status": index.status,
            "index_type": index.index_type,
            "type_url": index.type_url,
            "num_indexed_rows": index.indexed_rows,
            "num_unindexed_rows": index.unindexed_rows,
            "size_bytes": index.size_bytes,
            "num_segments": index.segments,
            "created_at": None if created is None else created.isoformat().replace("+00:00", "Z"),
            "index_version": index.index_version,
            "index_details": None if index.details is None else orjson.dumps(dict(index.details)).decode(),
        }
    )


def statistics_json(statistics: IndexStatistics) -> dict[str, Any]:
    return without_nulls(
        {
            "distance_type": statistics.distance_type,
            "index_type": statistics.index_type,
            "num_indexed_rows": statistics.indexed_rows,
            "num_unindexed_rows": statistics.unindexed_rows,
            "num_indices": statistics.indices,
        }
    )


def _parameters(fields: Fields, index_type: IndexType) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key in sorted(ALL_PARAMETERS):
        value = _value(fields, key)
        if value is None:
            continue
        if key not in known_parameters(index_type):
            raise InvalidInput(key, f"is not a parameter of an index of type {index_type}; leave it out")
        given[key] = value
    return given


def _value(fields: Fields, key: str) -> Any:
    if key in INTEGER_PARAMETERS:
        return fields.integer(key, 1)
    if key == "max_token_length":
        return fields.integer(key, 0)
    if key in FLAG_PARAMETERS:
        return fields.flag(key)
    if key == "custom_stop_words":
        words = fields.texts(key)
        return None if words is None else list(words)
    if key == "distance_type":
        return _distance_type(fields)
    return fields.text(key)


def _distance_type(fields: Fields) -> str | None:
    """`distance_type` in the specification, `metric_type` in lancedb's client."""
    name, alias = fields.text("distance_type"), fields.text("metric_type")
    if name is not None and alias is not None and name.lower() != alias.lower():
        raise InvalidInput(
            "metric_type", f"{alias!r:.60} differs from distance_type {name!r:.60}; give only one of them"
        )
    given = name or alias
    if given is None:
        return None
    return "l2" if given.lower() == "euclidean" else given.lower()
