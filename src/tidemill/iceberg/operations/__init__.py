"""What callers can do with Iceberg tables and views.

`tables` and `views` are the entry points; `access` hands out credentials and signs requests. Each operation
checks permissions first; those of changes are in `needs`. An operation that changes something takes a
`Mutation` and records its result with it in the transaction of the change. Changes go through `commit_engine`
if they write metadata files, and through `names` if they change only names; `outcomes` makes sure that both
learn whether they were committed. `purges` removes the files of dropped tables.
"""
