"""Calls functions in the current process, be it that of a task or a child.

- `batches`: what goes in (`BoundFunction`, `Rows`) and what comes out (`Part`)
- `scalar`: functions of one value per row, called row by row or with whole batches; bisection
- `chunks`: chunkers, called either way
- `in_process`: opens a function and chooses among the above by its kind; table functions, which read their
  source themselves
- `limits`: time limits, and the progress that the parent of a child watches
- `retries`: the error policy's view of an attempt, and the loop over attempts

An executor gets `Rows` and an `Attempt` and yields `Part`s in row order. What a function raises in a
call becomes the failure of a row; FunctionRaised is for what no row is to blame for, such as a function
that cannot be opened.

The zygote imports all of this, so it must stay cheap to import: no thread pools, installers
or subprocesses. May import the core and the root modules of `functions`, but not `isolation`.
"""
