"""The Lance namespace API, as the specification, lancedb's remote client and Geneva's client speak it."""
