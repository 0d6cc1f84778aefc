"""Decides and touches nothing: every function here maps what is known to what should be done."""
