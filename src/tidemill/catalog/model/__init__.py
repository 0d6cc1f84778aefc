"""Values of the catalog: frozen, comparable, without side effects."""
