"""Server-side scan planning: `scans` makes plans, `manifests` reads what pyiceberg does not."""
