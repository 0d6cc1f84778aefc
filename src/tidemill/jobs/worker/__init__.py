"""What a worker does: claim a job, hold its lease, carry it out, publish, and record how it ended.

    work, running     claim, lease, heartbeat; the job at hand and when to stop
    backfill, preview, refresh, verify
                      one runner for each kind of job
    auto_*            columns and views that fall behind: submits their jobs

Who submits is handed in: the worker imports nothing of `service/`.
"""
