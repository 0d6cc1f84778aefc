"""Values of the catalog: frozen, comparable, without behaviour that touches the outside."""
