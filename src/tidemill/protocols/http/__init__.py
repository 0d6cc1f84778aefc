"""What all protocols share: from a request to its handler, and from errors to responses."""
