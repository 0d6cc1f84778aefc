"""Calls table functions in child processes, and reads their source on their behalf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from tidemill.catalog.model.functions import Environment, Function
from tidemill.functions.calling.batches import BoundFunction
from tidemill.functions.environments import site_packages
from tidemill.functions.failures import FUNCTION_ERRORS, FunctionRaised, error_without_row
from tidemill.functions.isolation.clients import ChildLost
from tidemill.functions.isolation.pool import POOL, FunctionHost

STEPS: Final = frozenset({"select", "where", "limit", "offset", "with_row_id"})
NETWORK: Final = "network"


class Source(Protocol):
    """What a table function reads."""

    @property
    def schema(self) -> pa.Schema: ...

    def to_batches(self, batch_size: int | None = None) -> pa.RecordBatchReader: ...


class SourceReader:
    """Answers the requests of a child: the schema of the source, a new reader, or the next batch of one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._readers: dict[int, pa.RecordBatchReader] = {}
        self._opened = 0

    def answer(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        try:
            if "steps" not in wanted:
                return {}, self._next(wanted["reader"])
            refined = self._refined(wanted["steps"])
            if wanted.get("schema"):
                return {}, refined.schema.serialize()
            self._opened += 1
            self._readers[self._opened] = refined.to_batches(wanted.get("batch_size"))
            return {"reader": self._opened}, b""
        except FUNCTION_ERRORS as error:
            # A query that cannot be run, like any that the function could have made itself.
            return {"error": f"{type(error).__qualname__}: {error}"}, b""

    def _refined(self, steps: Any) -> Source:
        refined: Any = self._source
        for name, argument in steps:
            if name not in STEPS:
                raise ValueError(f"{name!r:.60} is not a method of the source")
            refined = getattr(refined, name)(argument)
        found: Source = refined
        return found

    def _next(self, number: int) -> Any:
        try:
            batch = self._readers[number].read_next_batch()
        except StopIteration:
            del self._readers[number]
            return b""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return sink.getvalue()


def isolated_batches(
    function: Function, source: Source, output: pa.Schema, host: FunctionHost, environment: Environment
) -> Iterator[pa.RecordBatch]:
    """Yields the result of a table function that runs in a child; raises FunctionRaised, also for a crash."""
    packages = site_packages(environment, host.environments_root, builds=host.builds_packages)
    network = function.declared.get(NETWORK) is True
    spec = host.zygote_spec(packages, environment.variables, network=network)
    bound = BoundFunction(function, tuple(function.parameters), output)
    child = POOL.acquire(bound, spec, host.memory_bytes)
    child.call_seconds = function.timeout_seconds or host.call_seconds
    try:
        for batch in child.run_table(SourceReader(source).answer):
            yield batch.cast(output) if batch.schema != output else batch
    except ChildLost as lost:
        raise FunctionRaised(error_without_row(lost.raised).failure, lost.raised.names) from lost
    finally:
        if child.is_idle:
            POOL.release(child)
        else:
            POOL.discard(child)
            child.end()
