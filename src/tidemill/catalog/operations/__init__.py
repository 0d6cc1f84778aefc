"""Operations of the catalog, one module per resource.

Every public method takes the caller first, checks the permission it needs, and has either all of its effects
or none.
"""
