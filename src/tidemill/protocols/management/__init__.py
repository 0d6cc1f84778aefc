"""Our own API at /api/v1: what the SDK, the command line and operators use beyond the two open protocols."""
