"""Evaluates what clients wrote (filters, projections, searches, new values) where the server can lose it.

Lance evaluates expressions in native code that trusts them: one filter can allocate terabytes, run for hours
or abort the process. So the server has a few query processes, each for one request at a time:

    request ──► QueryProcesses ──work, arguments──► query process ──► Lance
                     │         ◄──rows as an Arrow file, or error──
                     └ commits ◄──calls of the namespace──            (updates, deletes, merges, new columns)

- `bounds`: memory, time and size of a result; the errors that name the one that was exceeded.
- `evaluator`: the port. `InProcess` is for workers and tests; `pool` for servers.
- `pool`: the server's side. Starts, lends and kills processes, and answers their calls of the catalog.
- `process`: the other side: a zygote that has imported Lance forks them, in milliseconds.
- `tables`: how work opens tables on both sides, and writes the rows of a result.

Work is a function at the top of a module: it gets `Tables` or a namespace, and arguments that can be pickled.
Data files of a write are written by the query process, but the commit happens in the server, as an answer to
the process. A process that is killed leaves files that nobody refers to, or has committed everything.

The package is part of `lance`. It may import `datasets` and `functions.isolation`, not the modules whose work
it runs; `query_modules` names those, so that the zygote imports them before it forks.
"""
