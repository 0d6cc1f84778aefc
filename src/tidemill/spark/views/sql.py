"""Runs SQL views on Spark: sources become temporary views, and tasks write the result to the view."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import lance
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemill.jobs.model.views import KEY, RunSql, SqlInput, WrittenRows
from tidemill.spark.failures import SPARK_ERRORS, statement_failure
from tidemill.spark.views.sql_tasks import (
    Piece,
    input_schema,
    read_function,
    split_into_pieces,
    write_function,
)

TASKS_PER_SLOT: Final = 2
SMALL_KEY_COUNT: Final = 1000
ANSWER: Final = "answer binary"


def run_sql(session: SparkSession, stage: RunSql, slots: int, report_location: str) -> list[WrittenRows]:
    """Evaluates the statement and writes the rows that differ, with one task per slot."""
    tasks = 1 if _is_small(stage) else stage.parallelism or slots
    settings = {
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
    }
    with _settings(session, settings):
        try:
            for source in stage.inputs:
                _table(session, source, slots, report_location).createOrReplaceTempView(source.name)
            result = session.sql(stage.statement)
            rows = _with_plain_names(result).repartition(tasks, KEY).sortWithinPartitions(KEY)
            write = write_function(
                stage.target, result.columns, stage.inputs[0].keys if stage.inputs else None
            )
            answers = rows.mapInArrow(write, ANSWER).collect()
        except SPARK_ERRORS as error:
            raise statement_failure(error) from error
        finally:
            with suppress(PySparkException):
                for source in stage.inputs:
                    session.catalog.dropTempView(source.name)
    return [pickle.loads(bytes(row.answer)) for row in answers]


def _is_small(stage: RunSql) -> bool:
    """Whether there are few keys; then one task is faster than several."""
    return all(source.keys is not None and len(source.keys) <= SMALL_KEY_COUNT for source in stage.inputs)


def _table(session: SparkSession, source: SqlInput, slots: int, report_location: str) -> DataFrame:
    dataset = lance.dataset(source.location, version=source.version)
    pieces = [] if source.keys is not None and not source.keys else split_into_pieces(dataset)
    shares = _shares(pieces, slots * TASKS_PER_SLOT)
    schema = input_schema(source, dataset.schema)
    numbers = session.range(0, len(shares), 1, max(len(shares), 1))
    read = read_function(source, schema, shares, report_location)
    return numbers.mapInArrow(read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _with_plain_names(result: DataFrame) -> DataFrame:
    """Renames columns: PySpark interprets backticks and dots in the input names of mapInArrow."""
    return result.toDF(
        *(KEY if name == KEY else f"c{position}" for position, name in enumerate(result.columns))
    )


def _shares(pieces: list[Piece], tasks: int) -> list[list[Piece]]:
    return [pieces[first::tasks] for first in range(min(tasks, len(pieces)))]


@contextmanager
def _settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session temporarily, since other work shares it."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        # If the session is gone, the original error is the better message.
        with suppress(PySparkException):
            for name, old in before.items():
                if old is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, old)
