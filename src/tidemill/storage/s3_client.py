"""Opens boto3 clients and translates their errors; boto3 is imported only if an object store is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidemill.errors import InvalidInput, Unavailable
from tidemill.storage.client_options import ObjectStoreEnvironment

MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
ATTEMPTS: Final = 4
CONNECTIONS: Final = 32


class Refused(Unavailable):
    """The object store responded with an error code."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"The object store answered {code} for {what}")
        self.store_code = code


def open_client(service: str, environment: ObjectStoreEnvironment) -> Any:
    """A client for `s3` or `sts`; other settings come from the standard AWS environment."""
    try:
        boto3 = importlib.import_module("boto3")
        config = importlib.import_module("botocore.config").Config
    except ImportError as error:
        raise InvalidInput(
            "warehouse", "s3:// needs boto3; install it with: pip install 'tidemill[s3]'"
        ) from error
    return boto3.client(
        service,
        region_name=environment.region,
        endpoint_url=environment.endpoint if service == "s3" else None,
        config=config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            # Not every compatible store supports the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raises FileNotFoundError and Unavailable for boto3's errors; messages show only the error code."""
    exceptions = importlib.import_module("botocore.exceptions")
    try:
        yield
    except exceptions.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "an error"))
        if code in MISSING:
            raise FileNotFoundError(what) from error
        raise Refused(what, code) from error
    except exceptions.BotoCoreError as error:
        raise Unavailable(f"The object store does not answer for {what}: {error}") from error
