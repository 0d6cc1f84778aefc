"""Our own API at /api/v1: what the SDK, the command line and operators use beyond the two open protocols.

service.py, errors.py    all routes as one service; errors by name
mapping.py               jobs, plans, views, lineage and environments as JSON
routes/                  jobs (also explain and watch), columns, views, functions and manifests, health
"""
