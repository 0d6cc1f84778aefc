"""The command `tidemill`.

    main.py         the commands, put together; translates errors into exit codes
    serve.py        `serve` and `work`: starts the processes of `tidemill.server`
    doctor.py       is this machine ready, and if not, what to do
    runs.py         `backfill`, `refresh`, `preview` and `explain`
    columns.py      `columns`, `errors` and `lineage`
    jobs.py, views.py, manifests.py    the commands of those names; `verify` is in views.py
    audit.py        `audit`: who did, or was refused, what
    options.py      options that several commands share, among them which server a command talks to
    output.py       tables for people, JSON for machines

Commands other than `serve`, `work` and `doctor` are users of the SDK and see nothing that a Python user
could not see. Imports of the server happen only inside the commands that need it, so that `tidemill
--help` starts fast.
"""
