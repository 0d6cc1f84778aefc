"""Materialized views: what each kind reads, how its rows are made, and what they are made from.

    query, chunker, table_function, sql_kind
                  the kinds; each is an object with the answers that differ from kind to kind
    behavior      the questions: check, settle, read, keys, stage, sample, links
                  (`query` also has what all kinds but SQL share)
    kinds         the list; `behavior_of` finds the kind of a view
    definitions   what a caller says about a new view
    progress      looks at a view and its sources, for a plan
    lineage       links between columns
    sql/          reads statements: tables, types, keys, determinism

Server and worker both need this: the first to check and explain, the second to refresh. To the database and
to clients a view given as SQL is a query with a statement; only `kinds` knows that.
"""
