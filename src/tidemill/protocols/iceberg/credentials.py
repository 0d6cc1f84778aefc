"""Storage credentials and remote signing, in the property names that Iceberg clients know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.iceberg.mapping import LEVEL_SEPARATOR

CLIENT_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "aws_access_key_id": ("s3.access-key-id",),
    "aws_secret_access_key": ("s3.secret-access-key",),
    "aws_session_token": ("s3.session-token",),
    "expires_at_millis": ("s3.session-token-expires-at-ms",),
    "aws_endpoint": ("s3.endpoint",),
    # Java reads the first name, pyiceberg the second.
    "aws_region": ("client.region", "s3.region"),
}
SECRET_KEY: Final = "aws_secret_access_key"
SECRET_OPTIONS: Final = frozenset({"aws_access_key_id", SECRET_KEY, "aws_session_token", "expires_at_millis"})
ACCESS_DELEGATION: Final = "x-iceberg-access-delegation"
REMOTE_SIGNING: Final = "remote-signing"
S3: Final = "s3"
HTTP_METHODS: Final = frozenset({"PUT", "GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"})


def wants_only_signing(headers: Headers) -> bool:
    """Whether the client asks for remote signing and nothing else."""
    requested = ",".join(headers.getlist(ACCESS_DELEGATION)).split(",")
    return {kind.strip().lower() for kind in requested} - {""} == {REMOTE_SIGNING}


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key not in SECRET_OPTIONS}


def storage_config(options: Mapping[str, str]) -> dict[str, str]:
    config = {
        name: options[key] for key, names in CLIENT_PROPERTIES.items() if key in options for name in names
    }
    if "aws_endpoint" in options:
        # Stores other than Amazon's rarely have a host name per bucket.
        config["s3.path-style-access"] = "true"
    return config


def storage_credentials(location: str, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Empty if clients bring their own credentials."""
    if SECRET_KEY not in options:
        return []
    return [{"prefix": location, "config": storage_config(options)}]


def signing_config(ident: TableIdent) -> dict[str, str]:
    """Tells clients to have every request signed by the catalog; the endpoint is relative to its URI."""
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
        raise Unsupported(f"provider: signing for {provider!r:.60} is not supported, only for s3")
    method = body.required_text("method").upper()
    if method not in HTTP_METHODS:
        raise InvalidInput("method", f"{method!r:.60} is not one of {', '.join(sorted(HTTP_METHODS))}")
    return SignRequest(
        region=body.required_text("region"),
        method=method,
        uri=body.required_text("uri"),
        headers=_headers(body.nested("headers")),
        body=body.text("body"),
    )


def signed_json(signed: SignedRequest) -> dict[str, Any]:
    return {"uri": signed.uri, "headers": {name: list(values) for name, values in signed.headers.items()}}


def _headers(headers: Fields | None) -> dict[str, Sequence[str]]:
    if headers is None:
        raise InvalidInput("headers", "is missing; it must be an object of lists of strings")
    return {name: headers.texts(name) or () for name in headers.values}
