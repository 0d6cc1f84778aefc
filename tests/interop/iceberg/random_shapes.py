"""Random schemas, specs, orders and properties; most of them could be a client's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

TYPES: Final[Mapping[str, float]] = {
    **dict.fromkeys(("int", "long", "string"), 4),
    **dict.fromkeys(("date", "timestamp"), 3),
    **dict.fromkeys(("timestamptz", "decimal(9,2)"), 2),
    **dict.fromkeys(("float", "double", "boolean", "binary", "time", "uuid", "fixed[8]"), 1),
    **dict.fromkeys(("variant", "unknown", "timestamp_ns", "geometry", "INT", "decimal(9, 2)"), 0.3),
    **dict.fromkeys(("decimal(39,2)", "nonsense"), 0.05),
}
TRANSFORMS: Final[Mapping[str, float]] = {
    "identity": 12,
    "bucket[4]": 6,
    **dict.fromkeys(("truncate[3]", "year", "month", "day", "void"), 1),
    **dict.fromkeys(("hour", "Identity", "BUCKET[4]", "other"), 0.5),
    **dict.fromkeys(("bucket[0]", "odd[1"), 0.1),
}
FIELDS: Final = ("", "id", "at", *(f"f{at}" for at in range(20)))
# Of each type, values and what is none.
DEFAULTS: Final[Mapping[str, Sequence[Any]]] = {
    "int": (5, 5, 2**31, 5.0, "5", True),
    "long": (5, 2**40, 2**63, None),
    "float": (1.5, 5.0, 5, "NaN"),
    "double": (1.5, 5),
    "boolean": (True, "true", 1),
    "string": ("x", "", 5),
    "binary": ("00FF", "00FF", "0", "zz", ""),
    "date": ("2020-02-29", "2020-02-30", "20200101", 5, "2020-1-1"),
    "time": ("10:11:12", "10:11:12.123456", "25:00:00", "10:11:12.1234567890", "10"),
    "timestamp": ("2020-01-01T10:11:12", "2020-01-01T10:11:12.5", "2020-01-01", "2020-01-01T10:11:12Z", "x"),
    "timestamptz": (
        "2020-01-01T10:11:12+00:00",
        "2020-01-01T10:11:12",
        "2020-01-01T10:11:12+01:00",
    ),
    "uuid": (
        "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        "x",
        "0-0-0-0-0",
    ),
    "decimal(9,2)": ("1.25", "1.2", "1.250", "12", 1.25, "x"),
    "fixed[8]": ("0001020304050607", "00", "zz01020304050607"),
}
COLUMNS: Final = ("id", "at", "name", "n", "m", "l", "s")
PROPERTIES: Final[Mapping[str, Sequence[str]]] = {
    "p": ("1", "2"),
    "q": ("1", ""),
    "write.metadata.previous-versions-max": ("1", "2", "0"),
    "write.metadata.compression-codec": ("gzip", "none"),
    "write.metadata.delete-after-commit.enabled": ("true", "false"),
}
RARE_PROPERTIES: Final[Mapping[str, Sequence[str]]] = {
    "format-version": ("1", "2", "3", "4", "x"),
    "commit.retry.num-retries": ("x", "-1", "3"),
    "write.metadata.previous-versions-max": ("x",),
    "write.metadata.metrics.column.nothing": ("full",),
    "uuid": ("x",),
    "encryption.key-id": ("k",),
}


def one_of(rng: random.Random, weighted: Mapping[str, float]) -> str:
    return rng.choices(list(weighted), list(weighted.values()))[0]


def properties(rng: random.Random) -> dict[str, str]:
    pool = RARE_PROPERTIES if rng.random() < 0.1 else PROPERTIES
    return {key: rng.choice(pool[key]) for key in rng.sample(list(pool), rng.randrange(3))}


def column(rng: random.Random, field_id: int, depth: int = 0) -> Json:
    required = rng.random() < 0.3
    found: Json = {"id": field_id, "name": rng.choice(COLUMNS), "required": required}
    found["type"] = column_type(rng, field_id, depth)
    if rng.random() < 0.1:
        found["doc"] = "about"
    if rng.random() < 0.08:
        pool = DEFAULTS.get(found["type"], (5,)) if isinstance(found["type"], str) else (5, {}, [])
        found[rng.choice(("initial-default", "write-default"))] = rng.choice(pool)
    return found


def column_type(rng: random.Random, field_id: int, depth: int) -> Any:
    if depth < 2 and rng.random() < 0.15:
        inner = field_id * 10 + 100
        match rng.randrange(3):
            case 0:
                return {"type": "struct", "fields": columns(rng, [inner, inner + 1], depth + 1)}
            case 1:
                element = column_type(rng, inner, depth + 1)
                return {"type": "list", "element-id": inner, "element": element, "element-required": True}
            case _:
                return {
                    "type": "map",
                    "key-id": inner,
                    "key": "string",
                    "value-id": inner + 1,
                    "value": column_type(rng, inner + 2, depth + 1),
                    "value-required": False,
                }
    return one_of(rng, TYPES)


def columns(rng: random.Random, ids: Sequence[int], depth: int = 0) -> list[Json]:
    names = rng.sample(COLUMNS, len(ids))
    found = [
        {**column(rng, field_id, depth), "name": name} for field_id, name in zip(ids, names, strict=True)
    ]
    if len(found) > 1 and rng.random() < 0.03:
        found[0][rng.choice(("id", "name"))] = found[1][rng.choice(("id", "name"))]
    return found


def schema(rng: random.Random) -> Json:
    count = rng.randrange(1, 5)
    first = rng.choice((1, 1, 1, 5))
    fields = columns(rng, range(first, first + count))
    found: Json = {"type": "struct", "schema-id": rng.choice((0, 0, 1, 5)), "fields": fields}
    if rng.random() < 0.2:
        required = [one for one in fields if one["required"] and isinstance(one["type"], str)]
        chosen = required if rng.random() < 0.9 else fields
        found["identifier-field-ids"] = [one["id"] for one in chosen[: rng.randrange(1, 3)]]
    return found


def spec(rng: random.Random, sources: Sequence[int], first_id: int = 1000) -> Json:
    fields = []
    numbering = rng.choice(("all", "all", "none", "none", "all", "odd"))
    for at in range(rng.choice((0, 1, 1, 2, 3))):
        source = rng.choice(sources) if sources and rng.random() < 0.95 else 99
        transform = one_of(rng, TRANSFORMS)
        field: Json = {"name": rng.choice(FIELDS)}
        field |= {"source-id": source, "transform": transform}
        if numbering == "all" or (numbering == "odd" and rng.random() < 0.5):
            field["field-id"] = first_id + at
        fields.append(field)
    return {"spec-id": rng.choice((0, 1, 7)), "fields": fields}


def order(rng: random.Random, sources: Sequence[int]) -> Json:
    fields = [
        {
            "transform": one_of(rng, TRANSFORMS),
            "source-id": rng.choice(sources) if sources and rng.random() < 0.95 else 99,
            "direction": rng.choice(("asc", "desc", "ASC")),
            "null-order": rng.choice(("nulls-first", "nulls-last")),
        }
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    usual = 1 if fields else 0
    return {"order-id": usual if rng.random() < 0.9 else rng.randrange(4), "fields": fields}


def property_update(rng: random.Random, updates: dict[str, str] | None = None) -> Json:
    if rng.random() < 0.35:
        key = rng.choice(("removals", "removals", "removed"))
        removals = rng.sample(("p", "q", "nothing", "replace.drop-dialect.allowed"), rng.randrange(3))
        return {"action": "remove-properties", key: removals}
    key = rng.choice(("updates", "updates", "updated"))
    return {"action": "set-properties", key: properties(rng) if updates is None else updates}
