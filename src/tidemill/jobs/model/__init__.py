"""Values of jobs, by subject.

    options              the requests of jobs, every option declared once; `declarations`: how
    jobs                 states, leases, progress, events
    columns, views       what is declared, the stages that compute it, and what comes back
    plans                what a job would do and why
    coverage, failures   which rows are up to date, and which failed
    lineage              what is made from what
    indexes              types of indexes and their parameters

Nothing here reads or writes; stages travel to Spark, and requests are kept as JSON.
"""
