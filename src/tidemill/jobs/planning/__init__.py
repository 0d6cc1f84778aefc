"""Decides what a job does: reads what is known and turns it into a plan, without changing anything.

`assess` looks at a column and its table through read-only ports; everything else is a pure function from
what is known to what should be done. The server explains these plans and the worker runs them, so both
import this package and it imports neither.
"""
