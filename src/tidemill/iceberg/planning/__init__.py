"""Server-side scan planning: from a scan request to the data and delete files that a reader must open."""
