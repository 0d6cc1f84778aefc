"""Calls users' functions: computed columns, chunkers and table functions.

Spark's kernels hand over a function from the catalog and batches of Arrow data, and get values and
failed rows back.

- `api`: `ColumnFunction` and `ChunkFunction`, which kernels open once per task; the choice of executor
- `encodings`: opens a function in each of its encodings and caches it
- `environments`: installs the packages that a function or a job requires
- `failures`, `blobs`: what a function raises; blobs that it reads as files
- `calling/`: calls a function in this process, row by row or in batches; time limits; retries
- `isolation/`: calls a function in a child process; crashes, timeouts, memory limits

The way of a batch:

    kernel -> api -> calling.retries -> InProcessExecutor (calling) -> user's function
                                     -> ChildExecutor (isolation) -> pool -> child process:
                                        InProcessExecutor (calling) -> user's function

`calling` and the modules beside it run in tasks and in children alike; `isolation` imports `calling`,
and `api` imports both. The package may import the core (`catalog`, `jobs`), Arrow and NumPy, but neither
Lance nor Spark nor storage: a child must start fast and see no credentials.
"""
