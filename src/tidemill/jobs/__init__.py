"""Jobs: computed columns, materialized views, and the work that keeps them up to date.

This is the core of what Tidemill computes. It decides what has to be done and records what was done;
Spark, Lance and the database are behind the protocols in `ports.py`.

    model/      values: what is declared, requested, planned, run and recorded
    planning/   what a job would do; `explain` shows the plan and a job runs it
    views/      the kinds of materialized views, one module each; `sql/` reads statements
    service/    runs in the server: submissions, columns, views, explain, status, lineage, environments
    worker/     runs in the worker: claims jobs and carries them out, and submits those that are due
    ports.py    what jobs need from outside: job rows, coverage, table data, an executor, a publisher

`service/` and `worker/` do not import each other: the database is all that the two processes share. Both
import `views/`, which imports `planning/`.

A job: `service/submissions` writes a row; `worker/leases` claims it under a lease with a fencing epoch;
`planning/column_progress` or `views/progress` looks at tables and coverage; `planning` makes a plan of that,
and stages of the plan; the executor runs them; the publisher commits data, ledger and coverage in one
transaction that checks the epoch.

Imports: `tidemill.catalog` and `tidemill.errors`.
"""
