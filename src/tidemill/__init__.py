"""Tidemill: an open lakehouse catalog that computes columns and materialized views.

Work starts with `tidemill.connect()`; functions are declared with `@tidemill.udf` and `@tidemill.chunker`.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidemill.functions.blobs import Blob
    from tidemill.sdk.connection import connect
    from tidemill.sdk.definitions import ChunkerDefinition, QueryDefinition
    from tidemill.sdk.errors import ClientError, JobCancelled, JobFailed, TidemillRequestError
    from tidemill.sdk.explain import Explanation, RefreshExplanation
    from tidemill.sdk.functions import UDF, chunker, udf
    from tidemill.sdk.jobs import Job, JobEvent
    from tidemill.sdk.lake import Lake
    from tidemill.sdk.manifests import Manifest, ManifestInfo
    from tidemill.sdk.policies import OnError, fail, retry, skip
    from tidemill.sdk.preview import Preview
    from tidemill.sdk.status import ColumnStatus, RowErrorInfo
    from tidemill.sdk.table import Table
    from tidemill.sdk.view import View

__all__ = [
    "UDF",
    "Blob",
    "ChunkerDefinition",
    "ClientError",
    "ColumnStatus",
    "Explanation",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "Lake",
    "Manifest",
    "ManifestInfo",
    "OnError",
    "Preview",
    "QueryDefinition",
    "RefreshExplanation",
    "RowErrorInfo",
    "Table",
    "TidemillRequestError",
    "View",
    "__version__",
    "chunker",
    "connect",
    "fail",
    "retry",
    "skip",
    "udf",
]

# Loaded at first use: the server and the workers import this package too and need none of it.
_HOMES: Final = {
    "UDF": "sdk.functions",
    "Blob": "functions.blobs",
    "ChunkerDefinition": "sdk.definitions",
    "ClientError": "sdk.errors",
    "ColumnStatus": "sdk.status",
    "Explanation": "sdk.explain",
    "Job": "sdk.jobs",
    "JobCancelled": "sdk.errors",
    "JobEvent": "sdk.jobs",
    "JobFailed": "sdk.errors",
    "Lake": "sdk.lake",
    "Manifest": "sdk.manifests",
    "ManifestInfo": "sdk.manifests",
    "OnError": "sdk.policies",
    "Preview": "sdk.preview",
    "QueryDefinition": "sdk.definitions",
    "RefreshExplanation": "sdk.explain",
    "RowErrorInfo": "sdk.status",
    "Table": "sdk.table",
    "TidemillRequestError": "sdk.errors",
    "View": "sdk.view",
    "chunker": "sdk.functions",
    "connect": "sdk.connection",
    "fail": "sdk.policies",
    "retry": "sdk.policies",
    "skip": "sdk.policies",
    "udf": "sdk.functions",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidemill.{_HOMES[name]}"), name)


def _version() -> str:
    try:
        return metadata.version("tidemill")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"
