"""The two long-running processes, `tidemill serve` and `tidemill work`, and everything they are wired from.

    settings.py, client_settings.py    read once from defaults, the environment and the command line
    bootstrap.py, iceberg.py           wiring: which adapter stands behind which port
    serve.py                           the HTTP server, its sibling processes and the workers it starts
    worker.py                          the worker: a warm Spark session, one job at a time, and maintenance
    authentication.py, grants.py       who calls, and what they may do where
    secret_key.py, warehouse.py        what settings name: the sealing key, the warehouse
    health.py, logs.py                 what operators see
    parent_watch.py                    exits when the parent process is gone
    coalesced_writes.py                sends the head and the body of a response in one packet

Only this package and `cli` read the process environment; everybody else is handed values. It may import
everything except `cli`, and nothing imports it except `cli`.
"""
