"""Metadata documents of tables and views: pure functions on JSON objects, without I/O.

`tables` and `views` are the entry points: they create, change and validate whole documents. Every update of
a table has a `check` and an `apply` function in the module of its topic (`attributes`, `schemas`,
`partitions`, `sort_orders`, `snapshots`); `update_kinds` lists them by action name, and `apply` works on a
builder from `builders`. `types` and `json_fields` are what all of them read with. Unknown fields pass
through unchanged.
"""
