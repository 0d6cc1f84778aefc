"""The process that Spark's Python workers are forked from, made quick."""

from __future__ import annotations

import gc
import sys

# Before each task a Python worker drops its import caches. With Spark's zip and jar files on the path it then
# reads their directories again, about 0.2 s per task; the interpreter in use has pyspark installed anyway.
ARCHIVES = (".zip", ".jar")

sys.path[:] = [entry for entry in sys.path if not entry.endswith(ARCHIVES)]
sys.path_importer_cache.clear()

# What every task needs is imported once, before the fork, and kept out of garbage collection.
import numpy  # noqa: E402, F401
import pandas  # noqa: E402, F401
import pyarrow  # noqa: E402, F401
import pyspark.sql.pandas.types  # noqa: E402
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]  # pyspark's own entry point, without hints
