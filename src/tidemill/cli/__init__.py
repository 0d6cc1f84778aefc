"""The command `tidemill`.

    main.py             the commands, put together; translates errors into exit codes
    serve.py            `serve` and `work`: starts the processes of `tidemill.server`
    doctor.py, checks.py    is this machine ready, and if not, what to do
    runs.py, explain.py     `backfill`, `refresh`, `preview` and `explain`
    jobs.py, columns.py, views.py, lineage.py, environments.py    the commands of those names
    options.py, policies.py     options that several commands share
    output.py, *_output.py      tables for people, JSON for machines
    target.py               which server a command talks to

Commands other than `serve`, `work` and `doctor` are users of the SDK and see nothing that a Python user
could not see. Imports of the server happen only inside the commands that need it, so that `tidemill
--help` starts fast.
"""
