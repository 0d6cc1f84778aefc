"""Decides what a job does, and touches nothing.

    column_progress   looks at a column and its table, through ports that only read
    backfill          which rows of a column are computed
    refresh           which rows or keys of a view are made again, and why; output limits
    tasks             how the work is cut into tasks

All but `column_progress` are pure functions. The server explains these plans and the worker carries them out,
so both import this package and it imports neither.
"""
