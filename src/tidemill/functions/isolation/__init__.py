"""Calls functions in child processes, so that they cannot see a task's credentials or take it down.

Each task process has a pool of zygotes, one per environment: clean Python processes that have imported
Arrow. A zygote forks a child in milliseconds; a child opens one function and is kept for later tasks.

    task: ChildExecutor      pool             zygote                child
         |-- acquire -------->|                 |
         |                    |-- start ------->| (once)
         |                    |-- FORK -------->|-- fork ------------>| own session, memory limit
         |                    |<- process id ---|                     |
         |                    |-- OPEN (pickled function) ----------->| opens the function
         |<- ChildClient -----|<- OPENED or FAILED -------------------|
         |-- RUN (rows in Arrow, attempt) --------------------------->|
         |                                                            | calls the user's function;
         |   READ / BYTES, as the function reads blobs  <------------>| writes each call to CallProgress
         |<- PART (values and failed rows), every 0.1 s --------------|
         |<- DONE ----------------------------------------------------|
         |-- release -------->| (idle; reused for the same function)

Crash: the channel closes. The task has the zygote reap the child (END_CHILD) for its exit code, and
reads from CallProgress, in shared memory, which rows it was calling. Parts that have arrived are kept. A
new child gets the remaining rows; the rows at fault are tried once more, and then fail (one row) or are
bisected (a batch).

Timeout: an alarm in the child raises TimeoutError in the call, an ordinary failure of the row. If the
call is still the same one second after its limit, the task kills the child and goes on as after a crash,
without another try. A zygote exits when its task does, and its children with it.

A table function asks the task for its source (ASK_SOURCE / BYTES), one batch at a time, and sends its rows as
PARTs. If its child is lost, the partition has failed.

Modules: in the task `supervision` (ChildExecutor), `table_calls`, `pool` (with the settings), `clients`,
`confinement` (what a sandbox contains); in the other processes `child_main` (zygotes and children), `sandbox`
(how they get into one), `remote_table` and `kernel`; between them `protocol`. May import `calling`, but not
`api`.
"""
