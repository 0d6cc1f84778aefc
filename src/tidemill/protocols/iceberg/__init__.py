"""The Iceberg REST catalog protocol, served below `/iceberg`.

Rooms:

- `service`: the list of all routes, and the configuration that clients ask for first.
- `routes`: one module per resource. A route reads the request, calls one operation and builds the response.
- `idempotency`: routes that change something; runs each once per Idempotency-Key and replays its response.
- `mapping`, `parameters`: paths, bodies and query parameters as values; each operation at two paths.
- `scan_mapping`, `expressions`: scans and their filters from and to JSON.
- `responses`: what is sent back, with fresh credentials for each response.
- `errors`: the type and HTTP status of every error code.

A commit flows like this: `routes.tables.update_table` is declared with `mutation_route`, which reads the
table's name, checks permissions and looks for an earlier response. Without one it runs the route with a
`Mutation`, and the operation of `tidemill.iceberg` stores the response in the same transaction as the change.
`responses.respond` adds credentials and the ETag.

Clients of several languages depend on details that the specification leaves open. Comments name the client
that needs a detail; Iceberg's own test kit compares messages, so messages that repeat Iceberg's must not
change.

The package imports `tidemill.iceberg`, `tidemill.catalog`, `tidemill.errors` and `tidemill.protocols.http`.
It does not know the other protocols, the database or storage.
"""
