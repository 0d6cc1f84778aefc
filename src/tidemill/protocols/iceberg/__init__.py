"""The Iceberg REST catalog protocol, served below `/iceberg`.

Rooms:

- `service`: the list of all routes, and `routing`: each operation at two paths, with and without the prefix.
- `routes`: one module per resource. A route reads the request, calls one operation and builds the response.
- `identifiers`, `mapping`, `scan_mapping`, `expressions`, `terms`, `single_values`: JSON from and to values.
- `responses`, `etags`, `credentials`: what is sent back, with fresh credentials for each response.
- `idempotency`: runs every mutation once per Idempotency-Key and replays its response.
- `errors`: the type and HTTP status of every error code; `paging` and `referrers`: query parameters.
- `function_mapping`: registered Python functions as Iceberg functions.

A commit flows like this: `routes.commits` reads the identifier; `idempotency.run_mutation` looks for an
earlier response and otherwise runs the operation of `tidemill.iceberg`. That stores the response in the
same transaction as the change. `responses.respond` adds credentials and the ETag.

Clients of several languages depend on details that the specification leaves open. Comments name the client
that needs a detail; Iceberg's own test kit compares messages, so messages that repeat Iceberg's must not
change.

The package imports `tidemill.iceberg`, `tidemill.catalog`, `tidemill.errors` and `tidemill.protocols.http`.
It does not know the other protocols, the database or storage.
"""
