"""What a worker does: claims a job, keeps its lease alive, carries it out and records how it ended.

    leases      claim, lease, heartbeat; the job at hand and when to stop
    backfill, preview, refresh, verify, indexing
                one runner for each kind of job
    auto_jobs   columns and views that fell behind: has their jobs submitted

`service/` is not imported: `auto_jobs` is handed the function that submits.
"""
