"""Tidemill: an open lakehouse catalog that computes columns and materialized views.

Work starts with `tidemill.connect()`; functions are declared with `@tidemill.udf`, `@tidemill.chunker` and
`@tidemill.udtf`. `tidemill.chunkers` has functions that split texts.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidemill import chunkers
    from tidemill.functions.blobs import Blob
    from tidemill.sdk.connection import connect
    from tidemill.sdk.definitions import (
        BoundFunction,
        ChunkerDefinition,
        QueryDefinition,
        SqlDefinition,
        TableFunctionDefinition,
        bind,
    )
    from tidemill.sdk.errors import (
        ClientError,
        FunctionDiffers,
        JobCancelled,
        JobFailed,
        TidemillRequestError,
    )
    from tidemill.sdk.explain import Explanation, RefreshExplanation
    from tidemill.sdk.functions import UDF, chunker, udf
    from tidemill.sdk.jobs import Difference, Job, JobEvent, Preview, Verification
    from tidemill.sdk.lake import Lake
    from tidemill.sdk.options import Manifest, ManifestInfo, OnError, fail, retry, skip
    from tidemill.sdk.status import ColumnStatus, Lineage, LineageStep, RowErrorInfo, ViewStatus
    from tidemill.sdk.table import Table
    from tidemill.sdk.table_functions import TableUDF, over, udtf
    from tidemill.sdk.view import View

__all__ = [
    "UDF",
    "Blob",
    "BoundFunction",
    "ChunkerDefinition",
    "ClientError",
    "ColumnStatus",
    "Difference",
    "Explanation",
    "FunctionDiffers",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "Lake",
    "Lineage",
    "LineageStep",
    "Manifest",
    "ManifestInfo",
    "OnError",
    "Preview",
    "QueryDefinition",
    "RefreshExplanation",
    "RowErrorInfo",
    "SqlDefinition",
    "Table",
    "TableFunctionDefinition",
    "TableUDF",
    "TidemillRequestError",
    "Verification",
    "View",
    "ViewStatus",
    "__version__",
    "bind",
    "chunker",
    "chunkers",
    "connect",
    "fail",
    "over",
    "retry",
    "skip",
    "udf",
    "udtf",
]

# Loaded at first use: the server and the workers import this package too and need none of it.
_MODULES: Final = {
    "UDF": "sdk.functions",
    "Blob": "functions.blobs",
    "BoundFunction": "sdk.definitions",
    "ChunkerDefinition": "sdk.definitions",
    "ClientError": "sdk.errors",
    "ColumnStatus": "sdk.status",
    "Difference": "sdk.jobs",
    "Explanation": "sdk.explain",
    "FunctionDiffers": "sdk.errors",
    "Job": "sdk.jobs",
    "JobCancelled": "sdk.errors",
    "JobEvent": "sdk.jobs",
    "JobFailed": "sdk.errors",
    "Lake": "sdk.lake",
    "Lineage": "sdk.status",
    "LineageStep": "sdk.status",
    "Manifest": "sdk.options",
    "ManifestInfo": "sdk.options",
    "OnError": "sdk.options",
    "Preview": "sdk.jobs",
    "QueryDefinition": "sdk.definitions",
    "RefreshExplanation": "sdk.explain",
    "RowErrorInfo": "sdk.status",
    "SqlDefinition": "sdk.definitions",
    "Table": "sdk.table",
    "TableFunctionDefinition": "sdk.definitions",
    "TableUDF": "sdk.table_functions",
    "TidemillRequestError": "sdk.errors",
    "Verification": "sdk.jobs",
    "View": "sdk.view",
    "ViewStatus": "sdk.status",
    "bind": "sdk.definitions",
    "chunker": "sdk.functions",
    "connect": "sdk.connection",
    "fail": "sdk.options",
    "over": "sdk.table_functions",
    "retry": "sdk.options",
    "skip": "sdk.options",
    "udf": "sdk.functions",
    "udtf": "sdk.table_functions",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name == "chunkers":
        return importlib.import_module("tidemill.chunkers")
    if name not in _MODULES:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidemill.{_MODULES[name]}"), name)


def _version() -> str:
    try:
        return metadata.version("tidemill")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"
