"""Kernels that make the rows of views, by how they are made.

rows              from one source row each: query and chunker views
table_functions   by a table function, from a partition of the source
sql, sql_tasks    by a statement: the driver's part, and what its tasks read and write
"""
