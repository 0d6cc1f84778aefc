"""Materialized views: what each kind of view reads, how far it is behind, and what it is made from.

Server and worker both need it: the first to check and explain, the second to refresh.
"""
