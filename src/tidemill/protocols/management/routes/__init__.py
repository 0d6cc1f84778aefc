"""One module per resource; each ends with the table of its routes."""
