"""Views given as SQL: reads their statements with sqlglot; Spark evaluates them.

    functions the functions that a statement may call
    spark_text checks the text that Spark gets
    text      reads a statement or an expression, and refuses what has another result every time
    plan      makes a statement ready for Spark: its sources, its columns, its keys
    columns   tells the type of each column, as Spark would
    types     Arrow types and Spark's
    keys      finds the columns by which rows of the result can be made one key at a time
    lineage   what each column is made from

Pure functions over text and schemas: no table is read here. The kind of view is `jobs/views/sql_kind.py`.
"""
