"""The catalog: what exists, what it is called, where it lies, and who may touch it.

This is the core. It knows no HTTP, no SQL, no pylance and no Spark; it reaches them through the protocols
in `ports.py`, and Arrow types are its only foreign vocabulary.

    model/        values: identifiers, namespaces, tables and versions, functions, callers, secrets, receipts
    operations/   what callers can do, one class per resource; each checks permissions and runs transactions
    ports.py      what operations need from outside: the database, table files, table data, an authorizer
    errors.py     the refusals that only the catalog knows
    nonblocking.py, retries.py    how operations run on the event loop, and again after a deadlock

A request arrives from `protocols` as values of `model`. An operation asks the authorizer, decides, and
changes the database in one transaction. The hardest part is the commit of a table version:
`operations/versions.py` reserves and publishes it, `operations/settling.py` brings rows and manifests
back together, and docs/consistency.md says why.

Imports: `tidemill.errors`, and nothing else of ours.
"""
