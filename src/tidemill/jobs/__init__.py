"""Jobs: computed columns, materialized views, and the work that keeps them up to date.

This is the core of what Tidemill computes. It decides what has to be done and records what was done;
Spark, Lance and the database are behind the protocols in `ports.py`.

    model/        values: requests, job states, plans, stages, coverage, lineage
    planner/      pure functions from what is known to a plan; `explain` shows the plan and a job runs it
    operations/   two sides in one place:
                    server: submissions, job_changes (wakes whoever waits for a job), columns, views,
                            explain, lineage, provenance, view_status
                    worker: work (claim and lease), backfill, refresh, verify, preview, indexing, auto_*
    ports.py      what jobs need from outside: job rows, coverage, table data, an executor, a publisher

A job: `submissions` writes a row; `work` claims it under a lease with a fencing epoch; `assess*` look at
tables and coverage; `planner` turns that into stages; the executor runs them; the publisher commits data,
ledger and coverage in one transaction that checks the epoch.

Imports: `tidemill.catalog` and `tidemill.errors`.
"""
