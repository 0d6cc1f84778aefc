"""Views given as SQL: reads a statement, tells its columns and types, and finds the keys of its rows."""
