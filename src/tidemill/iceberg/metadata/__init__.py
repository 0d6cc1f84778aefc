"""Metadata documents of tables and views: pure functions on JSON objects, without I/O.

`tables` and `views` are the entry points: they create, change and validate whole documents. Every update has
a `check` and an `apply` function in the module of its topic (`attributes`, `schemas`, `partitions`,
`sort_orders`, `snapshots`; `view_updates` for what only views have). `update_kinds` lists them by the names
that clients send, and `apply` works on a builder from `builders`. `requirements` are checked before updates
are applied. `types` and `json_fields` are what all of them read with. Unknown fields pass through unchanged.
"""
