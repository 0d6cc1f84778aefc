"""Routes of the Iceberg protocol, one module per resource."""
