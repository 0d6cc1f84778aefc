"""Every Arrow type that Lance stores goes through functions unchanged; the others are refused at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type
from lance.file import LanceFileReader, LanceFileWriter

from tests.engine import Engine, InlineStageExecutor, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.columns import ColumnOutput
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.lance.changes import same_values
from tidemill.lance.storable_types import find_fault

ROWS: Final = 20
FILES: Final = "2.2"
IS: Final = pa.types
VECTOR: Final = pa.list_(pa.float32(), 4)
RECORD: Final = pa.struct([("a", pa.int64()), ("b", pa.string())])
LABEL: Final = pa.dictionary(pa.int8(), pa.string())
COUNTS: Final = pa.map_(pa.string(), pa.int64())
RECORD_VECTOR: Final = pa.list_(RECORD, 2)

STORABLE: Final = (
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(20, 4), pa.decimal128(38, 38), pa.decimal128(5, -2), pa.decimal256(50, 4)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(4), pa.binary(0)),
    *(pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("ms", "+02:00")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(LABEL, pa.dictionary(pa.uint64(), pa.large_string()), pa.dictionary(pa.int32(), pa.binary())),
    *(pa.dictionary(pa.int16(), pa.int64()), pa.dictionary(pa.int64(), pa.float32())),
    pa.dictionary(pa.int32(), pa.bool_()),
    *(pa.list_(pa.int64()), pa.list_(pa.null()), pa.list_(LABEL), pa.large_list(pa.string())),
    *(pa.list_(pa.list_(pa.string())), pa.list_(RECORD), pa.list_(VECTOR), pa.list_(COUNTS)),
    pa.list_(pa.field("element", pa.int32(), nullable=False)),
    pa.large_list(pa.list_(RECORD)),
    *(VECTOR, pa.list_(pa.float16(), 4), pa.list_(pa.float64(), 384), pa.list_(BFloat16Type(), 4)),
    *(pa.list_(pa.bool_(), 9), pa.list_(pa.int8(), 8), pa.list_(pa.null(), 2), pa.list_(VECTOR, 3)),
    *(pa.list_(pa.decimal128(20, 2), 2), pa.list_(pa.timestamp("us"), 2), pa.list_(pa.binary(4), 2)),
    *(pa.list_(pa.time32("s"), 2), pa.list_(pa.duration("us"), 2), pa.list_(pa.date32(), 2)),
    *(RECORD, pa.struct([("r", RECORD), ("l", pa.list_(RECORD))]), pa.struct([("v", VECTOR)])),
    *(pa.struct([("d", LABEL)]), pa.struct([("m", COUNTS)]), pa.struct([("n", pa.null())])),
    *(pa.struct([pa.field("a", pa.int64(), nullable=False)]), pa.struct([("a.b", pa.int8())])),
    *(COUNTS, pa.map_(pa.int32(), pa.list_(pa.string())), pa.map_(pa.binary(), LABEL)),
    *(pa.map_(pa.string(), COUNTS), pa.map_(pa.string(), RECORD), pa.map_(pa.string(), VECTOR)),
    *(pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.json_(), BFloat16Type()),
    *(pa.opaque(pa.binary(), "point", "tests"), pa.list_(pa.uuid()), pa.struct([("u", pa.uuid())])),
)

REFUSED: Final = (
    *(pa.string_view(), pa.binary_view(), pa.list_(pa.string_view()), pa.month_day_nano_interval()),
    *(pa.decimal32(7, 2), pa.decimal64(15, 2), pa.list_view(pa.int64()), pa.large_list_view(pa.int64())),
    *(pa.run_end_encoded(pa.int32(), pa.string()), pa.struct([("x", pa.decimal32(7, 2))])),
    pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    pa.sparse_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    pa.dictionary(pa.int32(), pa.string(), ordered=True),
    *(pa.dictionary(pa.int16(), pa.date32()), pa.dictionary(pa.int16(), pa.decimal128(10, 2))),
    *(pa.dictionary(pa.int16(), pa.binary(4)), pa.dictionary(pa.int16(), pa.duration("us"))),
    pa.map_(pa.string(), pa.int64(), keys_sorted=True),
    *(pa.struct([]), pa.list_(pa.struct([])), pa.struct([("e", pa.struct([])), ("a", pa.int64())])),
    *(pa.list_(pa.string(), 2), pa.list_(pa.large_binary(), 2), pa.list_(pa.list_(pa.string(), 2))),
    *(pa.list_(pa.list_(pa.int64()), 2), pa.list_(COUNTS, 2), pa.list_(LABEL, 2), pa.list_(pa.uuid(), 2)),
    *(RECORD_VECTOR, pa.list_(RECORD_VECTOR), pa.list_(RECORD_VECTOR, 2), pa.struct([("v", RECORD_VECTOR)])),
    *(pa.map_(pa.string(), RECORD_VECTOR), pa.list_(pa.binary(0), 2)),
)
# Crash Arrow itself, or break what reads the whole table, or lose values when arrays are put together.
REFUSED_UNTRIED: Final = (
    pa.dictionary(pa.int64(), pa.float16()),
    pa.list_(pa.float32(), 0),
    pa.struct([("a", pa.int64()), ("a", pa.int64())]),
    pa.dictionary(pa.int16(), pa.null()),
)
# Arrow makes no arrays of these from Python values, not even empty ones.
NOT_FROM_PYTHON: Final = (pa.list_(BFloat16Type(), 4), pa.list_(pa.uuid()), pa.struct([("u", pa.uuid())]))
# Nor of structs that hold one of these.
EXTENSIONS: Final = tuple(data_type for data_type in STORABLE if isinstance(data_type, pa.BaseExtensionType))
FROM_PYTHON: Final = tuple(
    data_type for data_type in STORABLE if data_type not in (*NOT_FROM_PYTHON, *EXTENSIONS)
)


def named(data_type: pa.DataType) -> str:
    return str(data_type)


def samples(data_type: pa.DataType, rows: int = ROWS, *, has_nulls: bool = True) -> pa.Array:
    """Values of a type: every third is null, lists have 0 to 3 elements, and so inside."""
    is_null = np.array([has_nulls and row % 3 == 1 for row in range(rows)], dtype=np.bool_)
    if data_type == pa.json_():
        texts = [None if gone else json.dumps({"row": row}) for row, gone in enumerate(is_null)]
        return pa.array(texts, data_type)
    if isinstance(data_type, pa.BaseExtensionType):
        stored = samples(data_type.storage_type, rows, has_nulls=has_nulls)
        return pa.ExtensionArray.from_storage(data_type, stored)
    if IS.is_fixed_size_list(data_type):
        values = samples(
            data_type.value_type, rows * data_type.list_size, has_nulls=data_type.value_field.nullable
        )
        return pa.FixedSizeListArray.from_arrays(values, type=data_type, mask=pa.array(is_null))
    if IS.is_struct(data_type) and not data_type.num_fields:
        return pa.array([None if gone else {} for gone in is_null], data_type)
    if IS.is_struct(data_type):
        parts = [samples(field.type, rows, has_nulls=field.nullable) for field in data_type]
        return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=pa.array(is_null))
    if IS.is_list(data_type) or IS.is_large_list(data_type) or IS.is_map(data_type):
        return listed(data_type, is_null)
    if IS.is_dictionary(data_type):
        words = plain(data_type.value_type)
        places = pa.array(np.arange(rows) % len(words), mask=is_null).cast(data_type.index_type)
        return pa.DictionaryArray.from_arrays(places, words, ordered=data_type.ordered)
    values = plain(data_type)
    places = np.arange(rows) % len(values)
    return values.take(pa.array(places, mask=is_null))


def listed(data_type: pa.DataType, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    sizes = np.where(is_null, 0, np.arange(len(is_null)) % 4)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    width = pa.int64() if IS.is_large_list(data_type) else pa.int32()
    offsets = pa.array(ends, mask=np.append(is_null, np.False_)).cast(width)
    count = int(ends[-1])
    if IS.is_map(data_type):
        keys = pa.array([str(number) for number in range(count)]).cast(data_type.key_type)
        return pa.MapArray.from_arrays(offsets, keys, samples(data_type.item_type, count), type=data_type)
    kind = pa.LargeListArray if IS.is_large_list(data_type) else pa.ListArray
    values = samples(data_type.value_type, count, has_nulls=data_type.value_field.nullable)
    return kind.from_arrays(offsets, values, type=data_type)


def plain(data_type: pa.DataType) -> pa.Array:
    """The extremes of a type without parts, and something between."""
    if IS.is_null(data_type):
        return pa.nulls(1)
    if IS.is_boolean(data_type):
        return pa.array([True, False])
    if IS.is_integer(data_type):
        limits = np.iinfo(data_type.to_pandas_dtype())
        return pa.array([0, limits.max, limits.min, 7], data_type)
    if IS.is_floating(data_type):
        return pa.array([0.0, -1.5, float("inf"), 0.25], data_type)
    if IS.is_decimal(data_type):
        return pa.array([Decimal((0, (digit,) * 3, -data_type.scale)) for digit in (0, 1, 9)], data_type)
    if IS.is_temporal(data_type) and not IS.is_interval(data_type):
        storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
        step = 86_400_000 if data_type == pa.date64() else 1
        return pa.array([0, 7 * step, 40_000 * step], storage).view(data_type)
    if IS.is_fixed_size_binary(data_type):
        return pa.array([bytes(data_type.byte_width), b"\xff" * data_type.byte_width], data_type)
    return pa.array(["", "tide", "Mühle" * 60], pa.string()).cast(data_type)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    running = Engine(tmp_path_factory.mktemp("types"))
    yield running
    running.close()


@pytest.fixture(params=[Isolation.TASK, Isolation.PROCESS], ids=str)
def isolated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    host = FunctionHost(request.param)
    running = Engine(tmp_path / "lake", InlineStageExecutor(str(tmp_path / "stages"), host))
    yield running
    running.close()


def identity(kind: FunctionKind, data_type: pa.DataType) -> Function:
    digest = hashlib.sha256(f"{kind} {data_type}".encode()).hexdigest()
    return column_function(lambda value: value, data_type, "value", kind=kind, digest=digest)


def create_table(engine: Engine, name: str, columns: Mapping[str, pa.Array]) -> TableIdent:
    """Two fragments with the same values; some rows of both are deleted."""
    table = engine.create_table(name, pa.table({"id": np.arange(ROWS), **columns}))
    engine.append(table, pa.table({"id": np.arange(ROWS, 2 * ROWS), **columns}))
    engine.open(table).delete("id % 5 = 2")
    return table


def filled(engine: Engine, table: TableIdent, column: str, **options: Any) -> int:
    return int(succeeded(engine.backfill(table, column, **options))["rows_computed"])


def read(engine: Engine, table: TableIdent, column: str, where: str | None = None) -> pa.Array:
    rows = engine.open(table).scanner(columns=[column], filter=where).to_table()
    return pa.concat_arrays(rows[column].chunks)


@pytest.mark.parametrize("data_type", STORABLE, ids=named)
def test_a_column_gets_what_the_function_gives(engine: Engine, data_type: pa.DataType) -> None:
    table = create_table(engine, f"t{STORABLE.index(data_type)}", {"c": samples(data_type)})
    engine.declare(table, "y", identity(FunctionKind.ARRAYS, data_type), "c")
    assert filled(engine, table, "y", where="id < 10", task_size=4) == 8
    assert read(engine, table, "y", "id < 10").equals(read(engine, table, "c", "id < 10"))
    assert read(engine, table, "y", "id >= 10").null_count == 24
    assert filled(engine, table, "y") == 24
    assert read(engine, table, "y").equals(read(engine, table, "c"))


def pack(*values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(values), names=[f"f{number}" for number in range(len(values))])


def pack_scalars(*values: Any) -> Mapping[str, Any]:
    return {f"f{number}": value for number, value in enumerate(values)}


def check_together(engine: Engine, kind: FunctionKind, kinds: Sequence[pa.DataType]) -> None:
    """Columns of these types are filled with what one function gets from others."""
    numbers = range(len(kinds))
    inputs = [f"c{number}" for number in numbers]
    table = create_table(engine, kind.value, dict(zip(inputs, map(samples, kinds), strict=True)))
    packed = pa.struct([(f"f{number}", data_type) for number, data_type in enumerate(kinds)])
    call = pack_scalars if kind is FunctionKind.SCALAR else pack
    outputs = tuple(ColumnOutput(f"y{number}", f"f{number}") for number in numbers)
    function = column_function(call, packed, *inputs, kind=kind)
    declaration = ColumnDeclaration("y0", function, tuple(inputs), outputs)
    engine.operations.columns.declare(LOCAL_CALLER, table, [declaration])
    assert filled(engine, table, "y0", where="id < 30", task_size=9) == 24
    assert filled(engine, table, "y1") == 8
    rows = engine.open(table).to_table()
    differing = [
        str(kinds[number]) for number in numbers if not is_same(rows[f"y{number}"], rows[f"c{number}"])
    ]
    assert differing == []


def is_same(made: pa.ChunkedArray, given: pa.ChunkedArray) -> bool:
    """The same values; a dictionary may have them in another order."""
    return bool(
        made.type.equals(given.type) and (made.equals(given) or made.to_pylist() == given.to_pylist())
    )


@pytest.mark.parametrize("kind", [FunctionKind.ARRAYS, FunctionKind.SCALAR], ids=str)
def test_values_of_every_type_go_to_functions_and_back(isolated: Engine, kind: FunctionKind) -> None:
    check_together(isolated, kind, FROM_PYTHON if kind is FunctionKind.SCALAR else STORABLE)


def test_extension_types_go_to_functions_and_back(isolated: Engine) -> None:
    columns = {f"c{number}": samples(data_type) for number, data_type in enumerate(EXTENSIONS)}
    table = create_table(isolated, "extensions", columns)
    for number, data_type in enumerate(EXTENSIONS):
        isolated.declare(table, f"y{number}", identity(FunctionKind.ARRAYS, data_type), f"c{number}")
        assert filled(isolated, table, f"y{number}") == 32
    rows = isolated.open(table).to_table()
    assert [str(kind) for n, kind in enumerate(EXTENSIONS) if not is_same(rows[f"y{n}"], rows[f"c{n}"])] == []


@pytest.mark.parametrize("data_type", STORABLE, ids=named)
def test_values_that_differ_are_told_from_those_that_do_not(data_type: pa.DataType) -> None:
    values = samples(data_type)
    places = pa.array([None if row % 4 == 0 else row for row in range(ROWS)], pa.int64())
    changed = values.take(places)
    assert same_values(values, values.take(pa.array(range(ROWS)))).all()
    expected = [row % 4 != 0 or not values[row].is_valid for row in range(ROWS)]
    assert same_values(values, changed).tolist() == expected


@dataclass(frozen=True)
class Guarded:
    """An engine with a table of one column."""

    engine: Engine
    table: TableIdent

    def declare(self, name: str, data_type: pa.DataType) -> None:
        self.engine.declare(self.table, name, identity(FunctionKind.ARRAYS, data_type), "x")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    engine = Engine(tmp_path_factory.mktemp("guarded"))
    yield Guarded(engine, engine.create_table("t", pa.table({"x": [1, 2]})))
    engine.close()


@pytest.mark.parametrize("data_type", [*REFUSED, *REFUSED_UNTRIED], ids=named)
def test_a_type_that_lance_cannot_store_is_refused(guarded: Guarded, data_type: pa.DataType) -> None:
    version = guarded.engine.open(guarded.table).version
    with pytest.raises(InvalidInput) as refused:
        guarded.declare("odd", data_type)
    assert f"'odd' is {data_type}" in str(refused.value)
    assert guarded.engine.open(guarded.table).version == version


def test_one_odd_field_of_a_result_is_refused(guarded: Guarded) -> None:
    packed = pa.struct([("fine", pa.int64()), ("odd", pa.decimal32(7, 2))])
    outputs = (ColumnOutput("a", "fine"), ColumnOutput("b", "odd"))
    declaration = ColumnDeclaration("a", identity(FunctionKind.ARRAYS, packed), ("x",), outputs)
    with pytest.raises(InvalidInput, match=r"'b' is decimal32\(7, 2\).*use decimal128\(7, 2\)"):
        guarded.engine.operations.columns.declare(LOCAL_CALLER, guarded.table, [declaration])


def test_older_tables_have_no_maps(guarded: Guarded) -> None:
    engine = guarded.engine
    table = engine.operations.tables.declare(LOCAL_CALLER, replace(guarded.table, name="old"), {})
    lance.write_dataset(pa.table({"x": [1]}), table.location, data_storage_version="2.1")
    for data_type in (COUNTS, pa.struct([("m", COUNTS)])):
        with pytest.raises(InvalidInput, match=r"files of version 2\.1"):
            engine.declare(table.ident, "y", identity(FunctionKind.ARRAYS, data_type), "x")
    engine.declare(table.ident, "y", identity(FunctionKind.ARRAYS, pa.list_(RECORD)), "x")


@pytest.mark.parametrize("data_type", STORABLE, ids=named)
def test_a_storable_type_has_no_fault(data_type: pa.DataType) -> None:
    assert find_fault(data_type, FILES) is None


@pytest.mark.parametrize("data_type", REFUSED, ids=named)
def test_only_what_lance_really_cannot_store_is_refused(data_type: pa.DataType, tmp_path: Path) -> None:
    assert not survives(data_type, tmp_path / "column.lance")


def survives(data_type: pa.DataType, path: Path) -> bool:
    """Whether values and nulls come out of a file as they went in; a panic of Lance's is no Exception."""
    schema = pa.schema([pa.field("c", data_type), pa.field("beside", pa.int64())])
    try:
        values = pa.concat_arrays([_tried(data_type), pa.nulls(2, data_type)])
        with LanceFileWriter(str(path), schema, version=FILES) as writer:
            writer.write_batch(pa.record_batch([values, pa.array(range(len(values)))], schema=schema))
        found = LanceFileReader(str(path)).read_all().to_table()["c"]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    return bool(found.type.equals(data_type) and found.combine_chunks().equals(values))


def _tried(data_type: pa.DataType) -> pa.Array:
    try:
        return samples(data_type)
    except (pa.ArrowException, TypeError):
        return pa.nulls(ROWS, data_type)
