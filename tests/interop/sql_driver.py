"""Runs SQL for another process: a statement per line comes in, its rows go out. Needs nothing but pyspark."""

import json
import os
import sys

from pyspark.sql import SparkSession


def main() -> None:
    # Whatever else Spark prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.argv[1])
    session = SparkSession.builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        answers.write(json.dumps(answer(session, json.loads(line)), default=str) + "\n")
        answers.flush()
    session.stop()


def answer(session: SparkSession, statement: str) -> dict[str, object]:
    try:
        return {"rows": [list(row) for row in session.sql(statement).collect()]}
    except Exception as error:  # noqa: BLE001 - the caller decides what a failure means
        return {"error": str(error)}


if __name__ == "__main__":
    main()
