"""What the server does for callers: check a request, answer it or leave the work to a job.

Nothing here calls a function of a user or changes data of a table; that is the worker's. The two share the
database and no code but `model/`, `planning/` and `views/`.
"""
