"""Statements of views evaluated in this process, by DuckDB, as the executor on Spark evaluates them."""

from __future__ import annotations

import duckdb
import lance
import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from tidemill.jobs.model.views import KEY, RunSql, SqlInput, WrittenRows
from tidemill.lance.key_hashes import key_array
from tidemill.lance.view_writer import ViewWriter


def run_sql_inline(stage: RunSql) -> WrittenRows:
    with duckdb.connect() as connection:
        for source in stage.inputs:
            connection.register(source.name, _table(source))
        rows = connection.sql(_statement(stage.statement)).to_arrow_table()
    made = rows.select(stage.target.output.names).cast(stage.target.output).combine_chunks()
    with ViewWriter(stage.target) as writer:
        for batch in made.to_batches():
            writer.put(batch)
        return writer.finish()


def _table(source: SqlInput) -> pa.Table:
    dataset = lance.dataset(source.location, version=source.version)
    table = dataset.to_table(columns=list(source.columns))
    if not source.key_columns:
        return table
    keys = key_array([table[name] for name in source.key_columns])
    table = table.append_column(KEY, pa.array(keys.view(np.int64)))
    if source.keys is None:
        return table
    return table.filter(pa.array(np.isin(keys, np.array(source.keys.to_array(), dtype=np.uint64))))


def _statement(statement: str) -> str:
    tree = sqlglot.parse_one(statement, read="spark")
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == "xxhash64":
            hashed = exp.Anonymous(this="hash", expressions=call.expressions)
            call.replace(
                exp.cast(
                    exp.Anonymous(this="fmod", expressions=[hashed, exp.Literal.number(2**52)]), "bigint"
                )
            )
    return tree.sql("duckdb")
