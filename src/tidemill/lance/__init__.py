"""Lance tables: operations of callers, the commit of versions, and what jobs read and write.

Every write ends in `committing_namespace`: pylance writes data files and a staged manifest, then calls back
into `versions`, which records the version and everything that belongs to it in one transaction.

Rooms:

- Versions: `versions/` commits and looks them up, and reconciles the database with storage.
- Operations: `tables`, `registrations`, `batches`, `rows`, `schema_operations`, `ref_operations`,
  `snapshot_operations`, `stored_queries`, `transactions`. They check permissions and call the modules below.
- pylance: `datasets` opens and commits, `dml` edits rows, `schemas` alters columns, `queries` reads,
  `indexes` builds indexes, `refs` manages tags and branches, `snapshots` restores, `transaction_log` reads
  history.
- Checks of input from clients: `filters`, `field_paths`, `full_text`, `storable_types`.
- Sources of jobs: `sources` gives the planner snapshots and changes, found by `changes` and
  `value_comparison`; `key_hashes` and the partitions of `indexes` group rows.
- Results of jobs: `column_files` and `view_writer` write data without committing, with the help of
  `row_matching`, `row_hashes`, `row_ids` and `fragment_sink`; `checkpoints` saves values in between;
  `publisher` commits.

The package may import `storage` (for file systems), `functions`, `jobs`, `catalog` and `errors`. It knows no
HTTP, no SQL database and no Spark. `server` wires it up, `protocols` call its operations, `spark` uses its
readers and writers inside tasks; `sdk` and `store` must not import it.
"""
