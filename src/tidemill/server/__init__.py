"""The two long-running processes, `tidemill serve` and `tidemill work`, and their wiring.

    settings.py                        read once from defaults, the environment and the command line
    bootstrap.py                       wiring: which adapter implements which port
    serve.py                           the HTTP server, its sibling processes and the workers it starts
    worker.py                          the worker: one Spark session, one job at a time, and maintenance
    access/                            who the caller is, what they may do, and the secret key
    connections.py                     what clients may send before they have authenticated
    health.py                          the health check
    processes.py                       logs of both processes, and how they stop when their parent is gone

Only this package and `cli` read the process environment; all other packages receive values. It may import
everything except `cli`, and only `cli` imports it.
"""
