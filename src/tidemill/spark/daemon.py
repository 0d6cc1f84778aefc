"""The process from which Spark forks its Python workers, tuned to start tasks faster."""

from __future__ import annotations

import gc
import sys

# A Python worker clears its import caches before each task. With Spark's zip and jar files on the path it
# would then read their directories again, about 0.2 s per task. The interpreter has pyspark installed anyway.
ARCHIVES = (".zip", ".jar")

sys.path[:] = [entry for entry in sys.path if not entry.endswith(ARCHIVES)]
sys.path_importer_cache.clear()

# Modules that every task needs are imported once, before the fork, and exempt from garbage collection.
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
