"""What callers can do with the catalog, one module per resource.

Every public method takes the caller first, checks the permission it needs, and leaves either all of its
effects or none.
"""
