"""Lance tables: what callers can do with them, how versions are committed, and what jobs read and write.

    model/      values that operations and protocols exchange, without pylance
    evaluation/ runs the expressions of clients in processes that can be lost
    versions/   commits versions, looks them up, and reconciles the database with storage

- Operations, one class per resource: `tables`, `registrations`, `batches`, `rows`, `stored_queries`,
  `schemas` (columns), `refs` (tags and branches), `transactions`. Each checks permissions. Where pylance
  does the work, its half is in the same module, a class `LanceTable...`.
- Rows are edited by `edits` and read by `queries` and `full_text`. `indexes` builds indexes for jobs.
- Every write ends in the `CommittingNamespace` of `datasets`: pylance writes data files and a staged
  manifest, then calls back into `versions`, which records the version and what belongs to it in one
  transaction. `datasets` also opens tables, repeats writes after conflicts and translates pylance's errors.
- Checks of input from clients: `filters`, `field_paths`, `storable_types`.
- Sources of jobs: `sources` gives the planner snapshots and changes, found by `changes` and
  `value_comparison`; `key_hashes` and the partitions of `indexes` group rows.
- Results of jobs: `fragments` (column files, new fragments) and `view_writer` write data without committing,
  with the help of `row_matching` and `chunk_identity`; `checkpoints` saves values in between; `publisher`
  commits.
- What is known of results: `fingerprints` and `freshness` tell which values are right, `view_results` keeps
  those of views, and `view_edits` finds what others did to a view.

The package may import `storage` (for file systems), `functions`, `jobs`, `catalog` and `errors`. It knows no
HTTP, no SQL database, no Spark and nothing of `iceberg`. `server` wires it up, `protocols` call its
operations, `spark` uses its readers and writers inside tasks; `sdk` and `store` must not import it.
"""
