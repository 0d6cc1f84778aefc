"""What a Python user imports as `tidemill`: `connect`, decorators for functions, tables, views and jobs.

    connection.py, http.py                 find or start a server, and talk to it
    lake.py, table.py, view.py, computed.py    the handles that users hold; names.py: their names
    functions.py, table_functions.py       `@udf`, `@chunker` and `@udtf`
    signatures.py, hints.py, payload.py    a Python function as a function version
    digest.py, bytecode.py                 the identity of that version
    definitions.py, options.py, data.py    definitions of columns and views, options of jobs, and rows
    jobs.py, explain.py, status.py    what the server answers
    errors.py                              one tree of exceptions

Every public name has a docstring whose examples run against a real server. The SDK imports values of the
core but neither pyspark nor pylance, so that importing it stays cheap.
"""
