"""The two long-running processes, `tidemill serve` and `tidemill work`, and their wiring.

    settings.py                        read once from defaults, the environment and the command line
    bootstrap.py                       wiring: which adapter implements which port
    serve.py                           the HTTP server, its sibling processes and the workers it starts
    worker.py                          the worker: one Spark session, one job at a time, and maintenance
    access_control.py                  who the caller is, and what they may do
    secret_key.py                      the encryption key
    health.py, logs.py                 health checks and logs, for operators
    parent_watch.py                    stops the process when its parent is gone
    coalesced_writes.py                sends the head and the body of a response in one packet

Only this package and `cli` read the process environment; all other packages receive values. It may import
everything except `cli`, and only `cli` imports it.
"""
