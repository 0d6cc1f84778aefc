"""What clients are told to open a table's files: options of ours in the names that Iceberg's clients know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.signing_ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.iceberg.identifiers import LEVEL_SEPARATOR

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "aws_access_key_id": ("s3.access-key-id",),
    "aws_secret_access_key": ("s3.secret-access-key",),
    "aws_session_token": ("s3.session-token",),
    "expires_at_millis": ("s3.session-token-expires-at-ms",),
    "aws_endpoint": ("s3.endpoint",),
    # Java reads the first, pyiceberg the second.
    "aws_region": ("client.region", "s3.region"),
}
SECRET: Final = "aws_secret_access_key"
SECRETS: Final = frozenset({"aws_access_key_id", SECRET, "aws_session_token", "expires_at_millis"})
DELEGATION: Final = "x-iceberg-access-delegation"
SIGNING: Final = "remote-signing"
S3: Final = "s3"
METHODS: Final = frozenset({"PUT", "GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"})


def wants_signatures_alone(headers: Headers) -> bool:
    """Whether a client asks to have requests signed and for nothing else."""
    asked = ",".join(headers.getlist(DELEGATION)).split(",")
    return {kind.strip().lower() for kind in asked} - {""} == {SIGNING}


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key not in SECRETS}


def storage_config(options: Mapping[str, str]) -> dict[str, str]:
    config = {name: options[key] for key, names in NAMES.items() if key in options for name in names}
    if "aws_endpoint" in options:
        # Stores that are not Amazon's seldom have a name for each bucket.
        config["s3.path-style-access"] = "true"
    return config


def storage_credentials(location: str, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Nothing where clients bring their own."""
    if SECRET not in options:
        return []
    return [{"prefix": location, "config": storage_config(options)}]


def signing_config(ident: TableIdent) -> dict[str, str]:
    """Has clients let every request be signed here: below the URI that they know the catalog by."""
    namespace = quote(LEVEL_SEPARATOR.join(ident.namespace.levels), safe="")
    endpoint = f"v1/namespaces/{namespace}/tables/{quote(ident.name, safe='')}/sign"
    return {
        "s3.remote-signing-enabled": "true",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.endpoint": endpoint,
        "signer.endpoint": endpoint,
    }


def read_sign_request(body: Fields) -> SignRequest:
    provider = body.text("provider") or S3
    if provider != S3:
        raise Unsupported(f"provider: requests for {provider!r:.60} are not signed here, only those for s3")
    method = body.required_text("method").upper()
    if method not in METHODS:
        raise InvalidInput("method", f"{method!r:.60} is none of {', '.join(sorted(METHODS))}")
    return SignRequest(
        region=body.required_text("region"),
        method=method,
        uri=body.required_text("uri"),
        headers=_headers(body.nested("headers")),
        body=body.text("body"),
    )


def signed_json(signed: SignedRequest) -> dict[str, Any]:
    return {"uri": signed.uri, "headers": {name: list(values) for name, values in signed.headers.items()}}


def _headers(given: Fields | None) -> dict[str, Sequence[str]]:
    if given is None:
        raise InvalidInput("headers", "is missing; it has to be an object of lists of strings")
    return {name: given.texts(name) or () for name in given.values}
