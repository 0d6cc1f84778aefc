"""`@udtf`: functions that read rows by themselves and make others, and the views they fill."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import pyarrow as pa

from tidemill.catalog.model.functions import FunctionKind
from tidemill.sdk.definitions import QueryDefinition, Source, TableFunctionDefinition
from tidemill.sdk.functions import UDF, declared, decorate, function_of, limited, signature_of
from tidemill.sdk.signatures import read_table_function

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class TableUDF(UDF[P, R]):
    """A function decorated with `@tidemill.udtf`; `over` says which rows it reads."""

    def over(
        self,
        rows: Source | QueryDefinition,
        *,
        partition_by: str | None = None,
        partition_by_index: str | None = None,
        inputs: Sequence[str] | None = None,
    ) -> TableFunctionDefinition:
        """What it makes of a table or query, as the definition of a view; see `tidemill.over`."""
        return over(
            self, rows, partition_by=partition_by, partition_by_index=partition_by_index, inputs=inputs
        )


class TableDecorator(Protocol):
    """What `udtf` gives when called with options."""

    @overload
    def __call__(self, target: C, /) -> C: ...  # type: ignore[overload-overlap]  # as with udtf itself
    @overload
    def __call__(self, target: Callable[P, R], /) -> TableUDF[P, R]: ...


@overload
def udtf(target: C, /) -> C: ...  # type: ignore[overload-overlap]  # a class is a callable too, and stays one
@overload
def udtf(target: Callable[P, R], /) -> TableUDF[P, R]: ...
@overload
def udtf(
    *,
    inputs: Sequence[str] | None = None,
    output: pa.Schema | type | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> TableDecorator: ...
def udtf(
    target: Any = None,
    /,
    *,
    inputs: Sequence[str] | None = None,
    output: pa.Schema | type | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    packages: Sequence[str] = (),
) -> Any:
    """Declares a function that reads many rows and makes any number of others, for a view made with `over`.

    It is called with one argument, from which it reads what it needs: `to_batches()`, `to_arrow()`,
    `to_pandas()` and `to_list()` give the rows, `select(columns)`, `where(condition)` and `limit(n)` narrow
    them before. It yields record batches, or rows: NamedTuples, dataclasses, dicts or tuples. Classes work
    as with `udf`.

    Args:
        inputs: The columns its argument has; by default those of the table or query.
        output: The schema of what it yields, or a NamedTuple or dataclass with a hint for each column; read
            from a return hint such as `Iterator[Total]` when not given.
        name: The name in the catalog; by default the function's own.
        timeout: How long one call may take, in seconds.
        packages: Packages it needs besides those of the workers, in pip's notation.

    Raises:
        TypeError: It does not say what it yields, or takes something else than one argument.

    >>> from collections.abc import Iterator
    >>> from typing import NamedTuple
    >>> import tidemill
    >>> class Total(NamedTuple):
    ...     texts: int
    ...     letters: int
    >>> @tidemill.udtf
    ... def totals(source) -> Iterator[Total]:
    ...     texts = [row["text"] for row in source.to_list()]
    ...     yield Total(len(texts), sum(len(text) for text in texts))
    >>> totals.output.names
    ['texts', 'letters']
    >>> view = lake.create_materialized_view("examples.totals", totals.over(docs))
    >>> job = view.refresh().wait(timeout=120)
    >>> view.query(columns=["texts", "letters"]).to_pylist()
    [{'texts': 2, 'letters': 14}]
    """
    declaration = declared(inputs, output, name, sys._getframe(1))
    return decorate(target, limited(declaration, timeout, packages), read_table_function, TableUDF)


def over(
    function: Any,
    rows: Source | QueryDefinition,
    *,
    partition_by: str | None = None,
    partition_by_index: str | None = None,
    inputs: Sequence[str] | None = None,
) -> TableFunctionDefinition:
    """What a function makes of a table or query, as the definition of a view.

    Args:
        function: Declared with `@tidemill.udtf`: a function, a class or an instance of one.
        rows: A table, or some rows and columns of one (`table.select(...)`, `table.where(...)`).
        partition_by: A column; the function is called for each of its values with the rows that have it, and
            a refresh calls it again only for values whose rows changed.
        partition_by_index: A column with a vector index; the function is called for each of its partitions.
        inputs: The columns the function gets; by default those of its declaration, or all.

    >>> from collections.abc import Iterator
    >>> import pyarrow as pa, tidemill
    >>> @tidemill.udtf(inputs=["id"], output=pa.schema([("highest", pa.int64())]))
    ... class Highest:
    ...     def __call__(self, source) -> Iterator[pa.RecordBatch]:
    ...         found = max(source.to_arrow()["id"].to_pylist(), default=None)
    ...         yield pa.record_batch({"highest": [found]})
    >>> tidemill.over(Highest(), docs.where("id < 2"), partition_by="text").partition_by
    'text'
    """
    signature = signature_of(function)
    if signature.kind is not FunctionKind.TABLE:
        raise TypeError(f"{signature.name} does not read rows itself; declare it with @tidemill.udtf")
    if partition_by is not None and partition_by_index is not None:
        raise ValueError("rows are parted by a column or by an index: give one of the two")
    if isinstance(inputs, str):
        raise TypeError(f"inputs= is a list of column names; write inputs=[{inputs!r}]")
    chosen = tuple(inputs) if inputs is not None else signature.inputs
    if not isinstance(rows, QueryDefinition | Source):
        raise TypeError(
            f"{signature.name} reads a table, table.select(...) or table.where(...), not {rows!r:.80}"
        )
    query = rows if isinstance(rows, QueryDefinition) else QueryDefinition(rows)
    query.refuse_functions(signature.name)
    return TableFunctionDefinition(
        query, function_of(function), chosen or None, partition_by, partition_by_index
    )
