"""Opens boto3 clients, maps their options and translates their errors; boto3 is imported only if needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidemill.errors import InvalidInput, StorageFull, Unavailable

MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
# MinIO, Ceph and others; Amazon's has no end.
FULL: Final = frozenset({"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"})
CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
ATTEMPTS: Final = 4
CONNECTIONS: Final = 32


class Refused(Unavailable):
    """The object store responded with an error code."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"The object store answered {code} for {what}")
        self.store_code = code


class Interrupted(Unavailable):
    """The connection broke inside the body of a response."""


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
        if code in FULL:
            raise StorageFull(what, f"the object store answered {code}") from error
        raise Refused(what, code) from error
    except (exceptions.ResponseStreamingError, exceptions.IncompleteReadError) as error:
        raise Interrupted(f"The object store does not answer for {what}: {error}") from error
    except exceptions.BotoCoreError as error:
        raise Unavailable(f"The object store does not answer for {what}: {error}") from error


PLACEHOLDER_REGION: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class ObjectStoreEnvironment:
    """Endpoint (None for Amazon's own) and region from the standard AWS variables."""

    endpoint: str | None
    region: str | None

    @property
    def is_plain_http(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


def read_environment(variables: Mapping[str, str]) -> ObjectStoreEnvironment:
    endpoint = (
        variables.get("AWS_ENDPOINT_URL_S3")
        or variables.get("AWS_ENDPOINT_URL")
        or variables.get("AWS_ENDPOINT")
        or None
    )
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or None
    # Other stores than Amazon's have no regions, but a request cannot be signed without one.
    return ObjectStoreEnvironment(endpoint, region or (None if endpoint is None else PLACEHOLDER_REGION))


def missing_variables(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The variables to add so that boto3, Lance and Arrow all use the same endpoint and region.

    Lance refuses an http endpoint unless AWS_ALLOW_HTTP is set, Arrow ignores AWS_ENDPOINT, and boto3 ignores
    AWS_REGION.
    """
    environment = read_environment(variables)
    wanted: dict[str, str] = {}
    if environment.endpoint is not None and not variables.get("AWS_ENDPOINT_URL_S3"):
        wanted["AWS_ENDPOINT_URL"] = environment.endpoint
    if environment.is_plain_http:
        wanted["AWS_ALLOW_HTTP"] = "true"
    if environment.region is not None:
        wanted |= {"AWS_REGION": environment.region, "AWS_DEFAULT_REGION": environment.region}
    return {name: value for name, value in wanted.items() if not variables.get(name)}
