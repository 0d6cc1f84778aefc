"""Versions of Lance tables: how they are committed, and how rows and manifests are kept in step.

    commit.py            reserves a version in the database, publishes its manifest, looks versions up
    reconcile.py         repairs what crashes and writers by location leave behind
    manifests.py         manifests in storage, staged and final
    manifest_format.py   reads manifests and checks those that clients stage

docs/consistency.md has the full argument.
"""
