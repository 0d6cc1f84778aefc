"""Runs the stages of jobs on Spark, classic or through Spark Connect.

`executor.SparkStageExecutor` implements the `StageExecutor` port of `jobs`. A worker plans a job, hands each
stage to the executor and publishes the result:

    worker -> executor -> cluster -> Spark -> kernel in a Python worker -> column files or view fragments

Modules by where they run:

- Driver: `target` (where Spark runs), `cluster` (classic sessions, how tasks are shipped), `connect` (Spark
  Connect), `startup` (starts Spark while jobs are planned), `executor`, and `views/sql`, which evaluates the
  statement of a SQL view.
- Tasks: `kernels` fills computed columns and `reading` reads for it; `views/` has one module for each way to
  make rows of a view.
- Both: `task_reports` carries progress and failures from tasks to the driver, and `failures` translates what
  Spark raises. `daemon` starts Python workers.

Task modules do not import Spark, so tests call them as plain functions. Tasks never commit: they write files
and return descriptions, and the worker publishes these through `lance`.

This package may import `lance`, `functions`, `storage`, `jobs`, `catalog` and `errors`, but neither `store`,
`protocols` nor `sdk`. Only `server` imports it.
"""
