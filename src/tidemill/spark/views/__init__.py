"""Makes the rows of views.

    rows              from one source row each: query and chunker views
    table_functions   by a table function, from a partition of the source at a time
    results           what rows' functions return: kept, checkpointed or computed
    partitions        the same for table functions
    sql               by a statement: what the driver does, and what tasks read and write for it

All write through `lance.view_writer`, which compares the rows with those the view has.
"""
