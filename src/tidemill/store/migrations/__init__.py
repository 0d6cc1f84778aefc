"""Numbered migrations of the catalog database, applied in order when a store is opened.

Each module has an `upgrade(connection)` that works on SQLite and PostgreSQL. A released migration never
changes: a new schema is a new module, listed in `runner.MIGRATIONS`. `tidemill.store.schema` describes the
result.
"""
