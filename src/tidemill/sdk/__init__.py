"""What a Python user imports as `tidemill`: `connect`, decorators for functions, tables, views and jobs.

    connection.py, embedded.py, http.py    find or start a server, and talk to it
    lake.py, lake_views.py, table.py, view.py, computed.py    the handles that users hold
    functions.py, table_functions.py       `@udf`, `@chunker` and `@udtf`
    signatures.py, hints.py, digest.py, payload.py, modules.py    a Python function as a function version
    definitions.py, bindings.py            views and columns as requests have them
    jobs.py, progress.py, explain.py, preview.py, status.py, freshness.py    what the server answers
    errors.py                              one tree of exceptions

Every public name has a docstring whose examples run against a real server. The SDK imports values of the
core but neither pyspark nor pylance, so that importing it stays cheap.
"""
