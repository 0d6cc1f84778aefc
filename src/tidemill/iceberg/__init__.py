"""Iceberg tables and views: their metadata, commits, scan planning and files.

Rooms:

- `model`: entries (tables and views as stored), and the requests that create and change them.
- `metadata`: the metadata documents. Pure functions on JSON objects that create, update and validate them.
- `operations`: what callers can do: create, load, commit, rename, drop, purge, sign requests.
- `planning`: server-side scan planning with pyiceberg.
- `ports`: what the package needs from the catalog database; `errors`: its error classes.
- `files`: metadata files, and a FileIO for pyiceberg.

A commit flows like this: `operations.tables` checks the requirements and applies the updates with
`metadata.tables`; `operations.commit_engine` writes the new metadata file, records the receipt of the request
and swaps the row of the table in one transaction, and starts over if another commit was faster. The row
decides which state is current. It also holds the metadata as the bytes that are served, so loading a table is
one query. Views take the same way through `operations.views` and `metadata.views`.

Documents are plain JSON objects, not pyiceberg's classes: those drop unknown fields and cannot write format
version 3. pyiceberg only reads manifests, for scans and purges.

The package imports `tidemill.catalog` and `tidemill.errors`, and nothing else of Tidemill. Database,
storage and HTTP reach it through ports and through `tidemill.protocols.iceberg`.
"""
