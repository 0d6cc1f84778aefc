"""Values of Lance tables that operations and protocols exchange: frozen, comparable, without pylance."""
