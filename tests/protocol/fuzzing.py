"""What random requests are made of: Arrow streams of every type, bodies after the specification's schemas."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from tests.specification.notation import REFERENCE, expanded
from tests.specification.tables import Operation, SpecificationTable

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
COMPRESSIONS: Final = (None, "lz4", "zstd")
MAX_SCHEMA_DEPTH: Final = 5

EVERY_TYPE: Final[Mapping[str, pa.Array]] = {
    "null": pa.nulls(4),
    "bool": pa.array([True, None, False, True]),
    "int8": pa.array([1, None, -3, 4], pa.int8()),
    "uint64": pa.array([1, None, 3, 2**64 - 1], pa.uint64()),
    "half": pa.array([1.0, None, 3.0, 4.0], pa.float16()),
    "double": pa.array([1.0, None, float("nan"), 4.0]),
    "string": pa.array(["a", None, "snow 雪", ""]),
    "large_string": pa.array(["a", None, "c" * 50, ""], pa.large_string()),
    "string_view": pa.array(["a", None, "c" * 50, ""], pa.string_view()),
    "binary": pa.array([b"a", None, b"\xff", b""]),
    "binary_view": pa.array([b"a", None, b"c" * 50, b""], pa.binary_view()),
    "fixed_binary": pa.array([b"abcd", None, b"wxyz", b"1234"], pa.binary(4)),
    "date": pa.array([0, None, 2, 3], pa.date32()),
    "time": pa.array([0, None, 2, 3], pa.time64("ns")),
    "timestamp": pa.array([0, None, 2, 3], pa.timestamp("us", "UTC")),
    "duration": pa.array([0, None, 2, 3], pa.duration("ms")),
    "interval": pa.array([(1, 2, 3), None, None, None], pa.month_day_nano_interval()),
    "decimal": pa.array([1, None, 3, 4], pa.decimal128(20, 2)),
    "wide_decimal": pa.array([1, None, 3, 4], pa.decimal256(60, 2)),
    "list": pa.array([[1, 2], None, [], [3]]),
    "large_list": pa.array([["a"], None, [], ["b", None]], pa.large_list(pa.string())),
    "list_view": pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int32())),
    "vector": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": ""}]),
    "map": pa.array([[("k", 1)], None, [], [("l", 2)]], pa.map_(pa.string(), pa.int32())),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "nested_dictionary": pa.array([["a"], None, [], ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "run_ends": pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(["a", "b"])),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 0, 0, 0], pa.int8()), [pa.array([1, 2, 3, 4])], field_names=["a"]
    ),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 4, pa.binary(16))),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 2]),
        pa.array([[1.0, 2.0, 3.0, 4.0]] * 4, pa.list_(pa.float32(), 4)),
    ),
    "deep": pa.array([[[{"a": [[1]]}]], None, [], [[]]]),
}


def stream_of(columns: Mapping[str, pa.Array], compression: str | None) -> bytes:
    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
        writer.write_table(table)
    return bytes(sink.getvalue())


def mutated(stream: bytes, chance: random.Random) -> bytes:
    """The stream with a few bytes changed, cut out, doubled, or set to what breaks lengths and offsets."""
    damaged = bytearray(stream)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(damaged))
        match chance.randrange(6):
            case 0 | 1:
                damaged[at] = chance.randrange(256)
            case 2:
                damaged[at] ^= 1 << chance.randrange(8)
            case 3:
                damaged[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0"))
            case 4:
                del damaged[at : at + chance.choice((1, 4, 8, 64))]
            case _:
                damaged[at:at] = damaged[at : at + chance.choice((1, 8, 64))]
        if not damaged:
            return b""
    return bytes(damaged)


def streams(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Mutations of every type and compression in turn, each with a name that says how to make it again."""
    chance = random.Random(seed)
    kinds = [(name, compression) for name in EVERY_TYPE for compression in COMPRESSIONS]
    whole = {
        (name, compression): stream_of(
            {"id": pa.array([1, 2, 3, 4]), "column": EVERY_TYPE[name]}, compression
        )
        for name, compression in kinds
    }
    for turn in range(count):
        kind = kinds[turn % len(kinds)]
        yield f"{kind} in turn {turn} of seed {seed}", mutated(whole[kind], chance)


@dataclass(frozen=True)
class Requests:
    """Values after the schemas of a specification."""

    table: SpecificationTable

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self.table.schemas[schema["$ref"].removeprefix(REFERENCE)]
        return schema

    def bodies(self, operation: Operation) -> st.SearchStrategy[Any]:
        is_json = operation.body is not None and operation.body != ARROW_STREAM
        return spoiled(self.values(expanded(operation.body))) if is_json else st.just({})

    def values(self, schema: Mapping[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
        """Values the schema describes."""
        schema = self.resolved(schema)
        if depth > MAX_SCHEMA_DEPTH:
            return st.none()
        if "anyOf" in schema:
            return st.one_of([self.values(one, depth + 1) for one in schema["anyOf"]])
        if "allOf" in schema:
            parts = [self.values(one, depth) for one in schema["allOf"]]
            return st.tuples(*parts).map(
                lambda values: {k: v for value in values if isinstance(value, dict) for k, v in value.items()}
            )
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        return self._typed(schema, depth)

    def named(self, name: str, schema: Mapping[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
        """What the schema describes, and often what the name promises: mere types seldom get far."""
        values = self.values(schema, depth)
        return st.one_of(HINTS[name], HINTS[name], values) if name in HINTS else values

    def _typed(self, schema: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
        match schema.get("type", "object" if "properties" in schema else None):
            case "object":
                return self._objects(schema, depth)
            case "array":
                return st.lists(self.values(schema.get("items", {}), depth + 1), max_size=3)
            case "integer":
                return st.sampled_from([0, 1, 2, 3, 10, -1, 2**31, 2**63 - 1])
            case "number":
                return st.sampled_from([0, 0.5, 1.0, -1.0, 1e308])
            case "boolean":
                return st.booleans()
            case "string":
                return TEXTS
            case _:
                return JUNK

    def _objects(self, schema: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        known = {
            name: self.named(name, one, depth + 1) for name, one in properties.items() if name != "identity"
        }
        extra = schema.get("additionalProperties")
        if not known and extra:
            inner = self.values(extra, depth + 1) if isinstance(extra, dict) else JUNK
            return st.dictionaries(TEXTS, inner, max_size=3)
        return st.fixed_dictionaries(
            {name: values for name, values in known.items() if name in required},
            optional={name: values for name, values in known.items() if name not in required},
        )


# Words that mean something in some field, and some that must not mean anything anywhere.
TEXTS: Final = st.sampled_from(
    [
        "id",
        "text",
        "vector",
        "t",
        "fz",
        "main",
        "dev",
        "v1",
        "append",
        "overwrite",
        "Create",
        "ExistOk",
        "l2",
        "cosine",
        "BTREE",
        "IVF_PQ",
        "FTS",
        "Skip",
        "Fail",
        "Restrict",
        "id=1",
        "id+1",
        "id>0",
        "text='x'",
        "true",
        "lower(text)",
        "int64",
        "string",
        "rename",
        "1",
        "-1",
        "../x",
        "/etc/passwd",
        "s3://other/x",
        "file:///etc",
        "_rowid",
        "0",
        "1e9",
        "$",
        "%",
        "%00",
        "\U0001f600",
        "SELECT",
        "null",
        "*",
        "a.b",
        "a['b']",
        "`id`",
        "",
        "\u2028",
        " ",
        "\x00",
        "[1, 2]",
        "{}",
        "id = 1 -- x",
        "x" * 300,
        "(" * 60,
        "id" + "+1" * 500,
    ]
)
JUNK: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just(2**70) | st.just(0.5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

COLUMNS: Final = st.sampled_from(["id", "text", "vector", "missing", "_rowid"])
EXPRESSIONS: Final = st.sampled_from(
    [
        "id = 1",
        "id > 0 AND text IS NOT NULL",
        "text LIKE 'r%'",
        "id + 1",
        "missing = 1",
        "1",
        "'x'",
        "true",
        "id::text",
    ]
)
VERSIONS: Final = st.sampled_from([1, 2, 3, 99])
HINTS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "id": st.just(["fz", "t"]),
    "branch": st.sampled_from(["main", "dev"]),
    "name": st.sampled_from(["dev", "v1", "new"]),
    "tag": st.sampled_from(["v1", "v2"]),
    "column": COLUMNS,
    "columns": st.lists(COLUMNS, max_size=2),
    "path": COLUMNS,
    "on": COLUMNS,
    "vector_column": COLUMNS,
    "predicate": EXPRESSIONS,
    "filter": EXPRESSIONS,
    "where": EXPRESSIONS,
    "expression": EXPRESSIONS,
    "updates": st.lists(st.tuples(COLUMNS, EXPRESSIONS).map(list), min_size=1, max_size=2),
    "version": VERSIONS,
    "k": st.integers(1, 5),
    "vector": st.just({"single_vector": [1.0, 2.0]}) | st.just({"multi_vector": [[1.0, 2.0], [0.0, 0.0]]}),
    "full_text_query": st.just({"string_query": {"query": "row", "columns": ["text"]}}),
    "index_type": st.sampled_from(["BTREE", "BITMAP", "LABEL_LIST", "FTS", "IVF_FLAT", "IVF_PQ", "NGRAM"]),
    "distance_type": st.sampled_from(["l2", "cosine", "dot"]),
    "page_token": st.sampled_from(["", "t", "0", "1", "zzz", "\x00", "%ff"]),
    "mode": st.sampled_from(["append", "overwrite", "Create", "ExistOk", "Overwrite", "Skip", "Fail"]),
}


@st.composite
def spoiled(draw: st.DrawFn, bodies: st.SearchStrategy[Any]) -> Any:
    """A body after the schema with up to two of its values replaced, whatever they were."""
    body = draw(bodies)
    if not isinstance(body, dict) or not body:
        return body
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        name = draw(st.sampled_from(sorted(body)))
        body = body | {name: draw(JUNK)}
    return body
