"""The catalog database: SQLite or PostgreSQL through SQLAlchemy.

This package implements the repository ports of `catalog`, `jobs` and `iceberg`. `engine.open_store` opens a
database, migrates it and returns a `SqlStore`. Its `transaction()` and `reading()` blocks yield a
`unit_of_work.SqlTransaction`, which holds one repository per kind of object:

- catalog: `namespaces`, `tables` (with stored queries), `versions` (with properties of transactions),
  `secrets`, `receipts`, `functions` (with environments)
- Iceberg: `iceberg` (entries, and the files to remove)
- jobs: `jobs` (with leases, events and workers), `derived` (computed columns and views), `bookkeeping`
  (coverage, committed parts, failed rows)

Supporting modules: `schema` describes the tables for queries and `migrations/` creates them; `column_types`
and `driver_errors` hide the differences between the two databases; `compiled_statements` speeds up hot
queries; `names` finds the names around one that is missing; `deferred` delays the bookkeeping of a version
until its manifest is in place; `sqlite_connections` has the writer and the readers of SQLite files;
`postgresql_connections` counts the rows that are changed on PostgreSQL.

The store may import `iceberg` (its model), `jobs`, `catalog` and `errors`. It must not import `lance` or
`storage`: it knows nothing of files. Only `server`, `cli` and tests import it; everyone else uses the ports.
"""
