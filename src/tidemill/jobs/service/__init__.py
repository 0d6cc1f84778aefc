"""What the server does for callers: checks a request, answers it, or leaves the work to a job.

    submissions       jobs: submit, look at, stop, resume
    job_changes       wakes the requests that wait for jobs
    columns, views    declare, describe
    indexes           asked for here, built by a worker
    explain, status, lineage
                      what a job would do; how far columns and views are behind; what they are made from
    pace              how long a job will take, judged by earlier ones
    environments      packages and variables under a name
    missing_names     what refusals say about names: what has the name, which names are near

Nothing here calls a function of a user or computes rows: that is the worker's, and `worker/` is not imported.
"""
