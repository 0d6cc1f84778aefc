"""The catalog: which tables and views exist, their names and locations, and who may use them.

This is the core. It knows nothing of HTTP, SQL, pylance or Spark and uses them through the protocols in
`ports.py`. Arrow types are the only foreign types in it.

    model/        values: identifiers, namespaces, tables and versions, functions, callers, secrets, receipts
    operations/   what callers can do, one class per resource; each checks permissions and runs transactions
    ports.py      what operations need: the database, table files, table data, an authorizer
    errors.py     the errors of the catalog
    nonblocking.py, retries.py    how operations run on the event loop, and how they retry after a deadlock

A request arrives from `protocols` as values of `model`. An operation checks the caller's permission
and changes the database in one transaction. The hardest part is the commit of a table version:
`operations/versions.py` reserves and publishes it, `operations/settling.py` reconciles rows and manifests,
and docs/consistency.md explains why.

Imports: `tidemill.errors`, and nothing else of ours.
"""
