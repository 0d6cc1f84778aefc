"""The three APIs of the server: the Lance namespace, the Iceberg REST catalog, and our own management API.

    http/         shared by all: the ASGI application, routing on raw paths, limits, reading bodies, errors
    lance/        at `/`; also the dialects of lancedb's remote client and of Geneva's
    iceberg/      at `/iceberg`
    management/   at `/api/v1`: jobs, plans, lineage, environments, health

Inside a protocol, `routes/<resource>.py` has one function per operation and the table of its routes,
`*mapping.py` translates between the wire and the values of operations, and `errors.py` says how each
`ErrorCode` is answered. A route translates, calls one operation and translates back; it decides nothing.

Protocols do not import each other, `lance` and `iceberg` know only their own format, and none of them knows
pylance, storage or the database: they get all operations as one value, `http.operations.Operations`.
"""
