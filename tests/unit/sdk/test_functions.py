"""`@udf` and `@chunker` on functions and classes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import pyarrow as pa
import pytest

from tidemill.catalog.model.functions import FunctionKind, decode_envelope, encode_envelope
from tidemill.functions.blobs import Blob
from tidemill.sdk.functions import chunker, function_of, signature_of, udf


class Word(NamedTuple):
    position: int
    word: str


def test_a_decorated_function_is_called_as_before() -> None:
    @udf
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert double(21) == 42
    assert double.__doc__ == "Twice."


def test_a_function_on_python_types_is_scalar() -> None:
    @udf
    def area(width: float, height: float | None) -> float | None:
        return height and width * height

    function = area.function
    assert (function.kind, function.parameters, function.name) == (
        FunctionKind.SCALAR,
        ("width", "height"),
        "area",
    )
    assert function.value_type == pa.float64()
    assert not function.is_stateful
    assert "def area" in (function.source or "")


def test_a_function_on_arrays_is_called_with_arrays() -> None:
    @udf(output=pa.int32())
    def add(left: pa.Array, right: pa.Array) -> pa.Array:
        return left

    assert add.function.kind is FunctionKind.ARRAYS
    assert add.function.value_type == pa.int32()


def test_a_function_on_a_batch_has_its_inputs_as_parameters() -> None:
    @udf(inputs=["a", "b"], output=pa.int64())
    def add(batch: pa.RecordBatch) -> pa.Array:
        return batch["a"]

    assert (add.function.kind, add.function.parameters, add.inputs) == (
        FunctionKind.BATCH,
        ("a", "b"),
        ("a", "b"),
    )


def test_parameters_with_defaults_get_no_column_unless_named() -> None:
    def scale(value: float, factor: float = 2.0) -> float:
        return value * factor

    assert udf(scale).function.parameters == ("value",)
    assert udf(inputs=["a", "b"])(scale).function.parameters == ("value", "factor")


def test_inputs_bind_columns_to_parameters() -> None:
    @udf(inputs=["body"], name="count")
    def words(text: str) -> int:
        return len(text.split())

    assert (words.name, words.inputs, words.function.parameters) == ("count", ("body",), ("text",))


def test_a_decorated_class_stays_a_class() -> None:
    @udf
    class Add:
        def __init__(self, amount: int = 1) -> None:
            self.amount = amount

        def __call__(self, number: int) -> int:
            return number + self.amount

    assert isinstance(Add(2), Add)
    assert Add(2)(40) == 42
    assert function_of(Add).is_stateful
    assert function_of(Add).digest == function_of(Add(1)).digest
    assert function_of(Add).digest != function_of(Add(2)).digest


def test_a_chunker_has_the_columns_of_what_it_yields() -> None:
    @chunker
    def words(text: str) -> Iterator[Word]:
        yield from (Word(*pair) for pair in enumerate(text.split()))

    assert words.function.kind is FunctionKind.CHUNKER
    assert words.function.output == pa.schema([("position", pa.int64()), ("word", pa.string())])
    assert list(words("a b")) == [Word(0, "a"), Word(1, "b")]


def test_a_chunker_may_name_its_columns_itself() -> None:
    schema = pa.schema([("letter", pa.string())])

    @chunker(output=schema)
    def letters(text: str):  # type: ignore[no-untyped-def]  # the schema stands in for the hint
        for letter in text:
            yield {"letter": letter}

    assert letters.function.output == schema


def test_hints_may_name_classes_of_the_enclosing_function() -> None:
    class Pair(NamedTuple):
        left: int
        right: int

    @chunker
    def pairs(number: int) -> Iterator[Pair]:
        yield Pair(number, number)

    assert pairs.output.names == ["left", "right"]


def test_the_envelope_carries_the_function_whole() -> None:
    @udf(output=pa.list_(pa.float32(), 2))
    def embed(text: str) -> list[float]:
        return [1.0, 2.0]

    assert decode_envelope(encode_envelope(embed.function), "udf") == embed.function


def test_something_undecorated_is_refused() -> None:
    with pytest.raises(TypeError, match=r"decorate it with @tidemill\.udf"):
        signature_of(len)


def untyped_parameter(text) -> int:  # type: ignore[no-untyped-def]  # that is the fault
    return len(text)


def untyped_result(text: str):  # type: ignore[no-untyped-def]  # that is the fault
    return len(text)


def unreadable_parameter(text: Callable[[], str]) -> int:
    return 0


def unreadable_result(text: str) -> dict[str, int]:
    return {}


def missing_name(text: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821  # that is the fault
    return text


def mixed(left: pa.Array, right: str) -> int:
    return 0


def array_without_output(left: pa.Array) -> pa.Array:
    return left


def batch_without_inputs(batch: pa.RecordBatch) -> pa.Array:
    return batch[0]


def variable(*texts: str) -> int:
    return 0


def keyword_only(*, text: str) -> int:
    return 0


def without_parameters() -> int:
    return 0


def generator(text: str) -> Iterator[int]:
    yield 0


async def asynchronous(text: str) -> int:
    return 0


async def asynchronous_generator(text: str) -> AsyncIterator[int]:
    yield 0


class NotCallable:
    pass


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (untyped_parameter, "untyped_parameter: parameter 'text' has no type hint"),
        (untyped_result, "untyped_result has no return hint"),
        (unreadable_parameter, "unreadable_parameter: parameter 'text' is"),
        (unreadable_result, "unreadable_result: the return hint cannot be read: dict"),
        (missing_name, "missing_name has a hint that cannot be found"),
        (mixed, "mixed mixes ways of being called"),
        (array_without_output, "array_without_output returns an Arrow array"),
        (batch_without_inputs, "batch_without_inputs takes a RecordBatch"),
        (variable, r"'\*texts: .*' has no fixed columns"),
        (keyword_only, "keyword_only: 'text' is keyword-only"),
        (without_parameters, "without_parameters has no parameter"),
        (generator, "generator yields rows"),
        (asynchronous, "asynchronous is async"),
        (asynchronous_generator, "asynchronous_generator is async"),
        (NotCallable, "NotCallable needs a method __call__"),
        ("text", "a function or class is needed"),
    ],
)
def test_a_fault_is_named_at_decoration(target: Any, said: str) -> None:
    said_with_batch = {"output": pa.int64()} if target is batch_without_inputs else {}
    with pytest.raises(TypeError, match=said):
        udf(**said_with_batch)(target)


def test_a_chunker_that_names_no_columns_is_refused() -> None:
    with pytest.raises(
        TypeError, match="generator: the return hint cannot be read: int does not name columns"
    ):
        chunker(generator)


def test_inputs_have_to_fit_the_parameters() -> None:
    with pytest.raises(TypeError, match="takes 1 column, inputs= names 2"):
        udf(inputs=["a", "b"])(untyped_result)
    with pytest.raises(TypeError, match=r"write inputs=\['a'\]"):
        udf(inputs="a")


def first_byte(image: Blob) -> int:
    return image.read(1)[0]


def first_byte_if_any(number: int, image: Optional[Blob]) -> int:  # noqa: UP045  # both ways are written
    return 0


def first_bytes(images: list[Blob]) -> int:
    return 0


def rows_of_blob(image: Blob) -> Iterator[Word]:
    yield Word(0, "")


def mixed_with_blob(image: Blob, number: pa.Array) -> pa.Array:
    return number


@pytest.mark.parametrize("function", [first_byte, first_byte_if_any])
def test_blobs_are_read_like_files(function: Any) -> None:
    assert udf(function).function.blob_parameters == ("image",)
    assert udf(function).function.kind is FunctionKind.SCALAR


def test_only_functions_of_single_values_read_blobs() -> None:
    with pytest.raises(TypeError, match="rows_of_blob: a chunker gets blobs as bytes"):
        chunker(rows_of_blob)
    with pytest.raises(TypeError, match="mixed_with_blob mixes ways of being called"):
        udf(mixed_with_blob)
    with pytest.raises(TypeError, match="parameter 'images' holds a Blob"):
        udf(first_bytes)


def plain(number: int) -> int:
    return number


@pytest.mark.parametrize("timeout", [90, 90.0, timedelta(minutes=1, seconds=30)])
def test_a_timeout_is_seconds_or_a_duration(timeout: float | timedelta) -> None:
    assert udf(timeout=timeout)(plain).function.timeout_seconds == 90.0


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True, "90", timedelta(0)])
def test_a_timeout_that_is_no_duration_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout= is a number of seconds greater than 0"):
        udf(timeout=timeout)


def test_another_timeout_leaves_values_up_to_date() -> None:
    assert udf(timeout=1)(plain).function.digest == udf(plain).function.digest


def test_other_packages_are_another_version() -> None:
    both = udf(packages=["numpy", "pillow==11.0"])(plain).function
    assert both.requirements == ("numpy", "pillow==11.0")
    assert both.digest != udf(plain).function.digest
    assert both.digest != udf(packages=["numpy"])(plain).function.digest
    assert both.digest == udf(packages=["pillow==11.0", "numpy"])(plain).function.digest


@pytest.mark.parametrize("packages", ["numpy", [""], [1]])
def test_packages_are_a_list_of_texts(packages: Any) -> None:
    with pytest.raises(TypeError, match="packages= is a list of packages"):
        udf(packages=packages)


def test_a_class_has_a_timeout_and_packages_too() -> None:
    @udf(timeout=3, packages=["numpy"])
    class Add:
        def __call__(self, number: int) -> int:
            return number

    function = function_of(Add)
    assert (function.timeout_seconds, function.requirements) == (3.0, ("numpy",))
    assert decode_envelope(encode_envelope(function), "udf") == function


@pytest.mark.parametrize(
    "output",
    [
        pa.float16(),
        pa.decimal128(10, 2),
        pa.decimal256(40, 3),
        pa.large_string(),
        pa.large_binary(),
        pa.binary(16),
        pa.timestamp("ns", "UTC"),
        pa.duration("s"),
        pa.time32("ms"),
        pa.date64(),
        pa.list_(pa.float32(), 768),
        pa.large_list(pa.string()),
        pa.struct([("a", pa.list_(pa.int8()))]),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_any_arrow_type_can_be_declared(output: pa.DataType) -> None:
    function = udf(output=output)(plain).function
    assert decode_envelope(encode_envelope(function), "udf").value_type == output
