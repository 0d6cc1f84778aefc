"""Tidemill: an open lakehouse catalog that computes columns and materialized views.

Work starts with `tidemill.connect()`; functions are declared with `@tidemill.udf` and `@tidemill.chunker`.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidemill.sdk.connection import connect
    from tidemill.sdk.definitions import ChunkerDefinition, QueryDefinition
    from tidemill.sdk.errors import ClientError, JobCancelled, JobFailed, TidemillRequestError
    from tidemill.sdk.explain import Explanation, RefreshExplanation
    from tidemill.sdk.functions import UDF, chunker, udf
    from tidemill.sdk.jobs import Job
    from tidemill.sdk.lake import Lake
    from tidemill.sdk.table import Table
    from tidemill.sdk.view import View

__all__ = [
    "UDF",
    "ChunkerDefinition",
    "ClientError",
    "Explanation",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Lake",
    "QueryDefinition",
    "RefreshExplanation",
    "Table",
    "TidemillRequestError",
    "View",
    "__version__",
    "chunker",
    "connect",
    "udf",
]

# Loaded at first use: the server and the workers import this package too and need none of it.
_HOMES: Final = {
    "UDF": "functions",
    "ChunkerDefinition": "definitions",
    "ClientError": "errors",
    "Explanation": "explain",
    "Job": "jobs",
    "JobCancelled": "errors",
    "JobFailed": "errors",
    "Lake": "lake",
    "QueryDefinition": "definitions",
    "RefreshExplanation": "explain",
    "Table": "table",
    "TidemillRequestError": "errors",
    "View": "view",
    "chunker": "functions",
    "connect": "connection",
    "udf": "functions",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidemill.sdk.{_HOMES[name]}"), name)


def _version() -> str:
    try:
        return metadata.version("tidemill")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"
