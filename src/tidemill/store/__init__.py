"""The catalog database: SQLite or PostgreSQL through SQLAlchemy.

This package implements the repository ports of `catalog`, `jobs` and `iceberg`. `engine.open_store` opens a
database, migrates it and returns a `SqlStore`. Its `transaction()` and `reading()` blocks yield a
`unit_of_work.SqlTransaction`, which holds one repository per kind of object:

- catalog: `namespaces`, `tables`, `versions`, `transaction_properties`, `secrets`, `stored_queries`,
  `receipts`, `functions`, `environments`
- Iceberg: `iceberg` (entries, and the files to remove)
- jobs: `jobs` (with events and workers), `leases`, `ledgers` (committed parts, failed rows)
- results: `derived` (computed columns and views), `coverage`

Supporting modules: `schema` describes the tables for queries and `migrations/` creates them; `column_types`
and `driver_errors` hide the differences between the two databases; `compiled_statements` speeds up hot
queries; `deferred` delays the bookkeeping of a version until its manifest is in place; `sqlite/` holds the
connection pools for SQLite files.

The store may import `iceberg` (its model), `jobs`, `catalog` and `errors`. It must not import `lance` or
`storage`: it knows nothing of files. Only `server`, `cli` and tests import it; everyone else uses the ports.
"""
