"""The Lance namespace API, as the specification, lancedb's remote client and Geneva's client speak it.

    service.py, errors.py       all routes as one service; errors with the protocol's codes
    routes/                     one module per resource
    requests.py, mapping.py     what requests have in common; namespaces, tables, versions
    row_mapping.py, text_mapping.py, index_mapping.py    queries, changes of rows, full-text search, indexes
    column_mapping.py, view_mapping.py, job_mapping.py   computed columns, materialized views, jobs
    arrow_json.py               Arrow schemas and types as JSON
    lancedb_functions.py, lancedb_sql.py    what only lancedb's remote client sends
    geneva_mapping.py, geneva_jobs.py       what only Geneva's client sends and reads

A route reads the request with a mapping, calls one operation of the core and renders its result. Routes hold
no rules of their own.
"""
