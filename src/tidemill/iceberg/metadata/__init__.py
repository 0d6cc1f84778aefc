"""Metadata documents of tables and views: pure functions on JSON objects, without I/O.

`tables` and `views` are the entry points. Every update of a table has a `check` and an `apply` function in
the module of its topic; `table_updates` lists them by action name. Unknown fields pass through unchanged.
"""
