"""The catalog: what tables of both formats share. Names, locations, functions, secrets, and who may use them.

This is the core. It knows nothing of HTTP, SQL, pylance or Spark and uses them through the protocols in
`ports.py`. Arrow types are the only foreign types in it.

    model/        values: identifiers, namespaces, tables and versions, functions, callers, secrets, receipts
    operations/   what callers can do, one class per resource; each checks permissions and runs transactions
    locations.py  locations of tables: which are allowed and free, and who may write there
    ports.py      what operations need: the database, table files, an authorizer, a request signer
    errors.py     the errors of the catalog
    nonblocking.py, retries.py    how operations run on the event loop, and how they retry after a deadlock

A request arrives from `protocols` as values of `model`. An operation checks the caller's permission
and changes the database in one transaction. What only tables of one format have is in `tidemill.lance` and
`tidemill.iceberg`. Rows of both are reached through the ports here, because they share one database, and one
transaction may touch both.

Imports: `tidemill.errors`, and nothing else of ours.
"""
