"""Maps the standard AWS variables to the names that each object store client expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
