"""What callers can do with Iceberg tables and views.

Each operation checks permissions first. Changes go through `commit_engine` if they write metadata files, and
through `names` if they change only names; `outcomes` makes sure that both learn whether they were committed.
"""
