"""Decides what a job does, and touches nothing.

    assess     looks at a column and its table, through ports that only read
    backfill   which rows of a column are computed
    refresh    which rows or keys of a view are made anew, and why; output limits
    tasks      how the work is cut into tasks

All but `assess` are pure functions. The server explains these plans and the worker carries them out, so both
import this package and it imports neither.
"""
