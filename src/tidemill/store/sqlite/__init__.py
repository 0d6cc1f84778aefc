"""Connections to a SQLite file: one writer per process and a pool of read-only connections.

SQLite has one writer at a time and, in WAL mode, any number of readers. `writer` makes the threads of a
process take turns, `readers` keeps read-only connections open. PostgreSQL uses SQLAlchemy's own pool instead.
"""
