"""Builds responses with the state of a table or view.

A response is built in two steps. `ReplayableResponse` has what stays the same however often it is sent; it is
stored in receipts. `respond` completes it with what must be fresh each time: credentials, configuration and
ETag. The metadata is copied as stored bytes; only a load with `snapshots=refs` has to parse it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR, TableIdent, table_ident
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput, Unavailable, Unsupported
from tidemill.iceberg.metadata.labels import labels_of
from tidemill.iceberg.metadata.tables import refs_only
from tidemill.iceberg.model.entries import Document, Entry, StagedTable
from tidemill.iceberg.operations.access import TABLE_UUID
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.iceberg.parameters import Snapshots

JSON: Final = "application/json"
COMPRESS_FROM_BYTES: Final = 1024
FASTEST: Final = 1
TAG_BYTES: Final = 16
MAX_CACHED_LABELS: Final = 4096


@dataclass(frozen=True, slots=True)
class ReplayableResponse:
    """A response without the parts that differ each time it is sent.

    Credentials are vended for `location`. With `lacks_config`, the body lacks its end: configuration and
    credentials. The ETag stands for the file `metadata_location`; `table` is the table's identifier.
    """

    status: int
    body: bytes = b""
    location: str | None = None
    metadata_location: str | None = None
    table: tuple[str, ...] = ()
    lacks_config: bool = False

    def to_bytes(self) -> bytes:
        is_compressed = len(self.body) >= COMPRESS_FROM_BYTES
        head = orjson.dumps(
            [self.status, self.location, self.metadata_location, self.table, self.lacks_config, is_compressed]
        )
        return head + b"\n" + (zlib.compress(self.body, FASTEST) if is_compressed else self.body)

    @classmethod
    def from_bytes(cls, stored: bytes) -> ReplayableResponse:
        head, _, body = stored.partition(b"\n")
        status, location, metadata_location, table, lacks_config, is_compressed = orjson.loads(head)
        return cls(
            status,
            zlib.decompress(body) if is_compressed else body,
            location,
            metadata_location,
            tuple(table),
            lacks_config,
        )


NO_CONTENT: Final = ReplayableResponse(204)


def no_content(_: object) -> ReplayableResponse:
    """Whatever the operation returns."""
    return NO_CONTENT


def replayable_json(value: Any, status: int = 200) -> ReplayableResponse:
    return ReplayableResponse(status, orjson.dumps(value))


def loaded_table(entry: Entry) -> ReplayableResponse:
    """A LoadTableResult."""
    body = _start(entry.metadata_location, entry.metadata) + _labels(entry)
    return ReplayableResponse(
        200, body, entry.location, entry.metadata_location, entry.ident.levels, lacks_config=True
    )


def created_table(created: Entry | StagedTable) -> ReplayableResponse:
    """A LoadTableResult; without metadata-location for a staged table, because there is no file yet."""
    if isinstance(created, Entry):
        return loaded_table(created)
    body = b'{"metadata":' + created.metadata
    return ReplayableResponse(200, body, created.location, None, created.ident.levels, lacks_config=True)


def committed_table(entry: Entry) -> ReplayableResponse:
    """A CommitTableResponse."""
    body = _start(entry.metadata_location, entry.metadata) + b"}"
    return ReplayableResponse(200, body, entry.location, entry.metadata_location, entry.ident.levels)


def unregistered_table(entry: Entry) -> ReplayableResponse:
    return ReplayableResponse(200, _start(entry.metadata_location, entry.metadata) + b"}")


def loaded_view(entry: Entry) -> ReplayableResponse:
    """A LoadViewResult."""
    body = _start(entry.metadata_location, entry.metadata) + _labels(entry)
    return ReplayableResponse(200, body + b',"config":{}}')


def replay(call: Call, response: ReplayableResponse) -> Response:
    """Sends a stored response again; adds credentials only if the table still has the same location."""
    if response.location is None or call.operations.iceberg_access.is_current_location(
        table_ident(response.table), response.location
    ):
        return respond(call, response)
    return _response(response.status, response.body + (b',"config":{}}' if response.lacks_config else b""))


def respond(call: Call, response: ReplayableResponse) -> Response:
    if response.location is None:
        return _response(response.status, response.body)
    try:
        options = _options(call, table_ident(response.table), response.location)
    except Unavailable:
        # The operation succeeded: clients can request credentials later, but must not repeat the commit.
        options = None
    headers = {}
    config = _config(call, response.table, options or {})
    if response.metadata_location is not None and options is not None:
        headers["etag"] = tag_of(response.metadata_location, Snapshots.ALL, config)
    if not response.lacks_config:
        return _response(response.status, response.body, headers)
    end = _end(response.location, options or {}, config, lambda: _metadata_in(response.body))
    return _response(response.status, response.body + end, headers)


def respond_loaded(call: Call, entry: Entry, snapshots: Snapshots) -> Response:
    """A loaded table, or 304 if the client already has this state in this form."""
    options = _options(call, entry.ident, entry.location)
    config = _config(call, entry.ident.levels, options)
    tag = tag_of(entry.metadata_location, snapshots, config)
    headers = {"etag": tag}
    if client_has_tag(call, tag):
        return Response(status_code=304, headers=headers)
    metadata = entry.metadata if snapshots is Snapshots.ALL else _with_refs_only(entry.metadata)
    end = _end(entry.location, options, config, lambda: orjson.loads(entry.metadata))
    return _response(200, _start(entry.metadata_location, metadata) + _labels(entry) + end, headers)


def _start(metadata_location: str, metadata: bytes) -> bytes:
    return b'{"metadata-location":' + orjson.dumps(metadata_location) + b',"metadata":' + metadata


_labels_by_file: dict[str, bytes] = {}


def _labels(entry: Entry) -> bytes:
    """The labels as part of a body, or nothing. A metadata file never changes, so neither do its labels."""
    found = _labels_by_file.get(entry.metadata_location)
    if found is None:
        may_block()
        labels = labels_of(orjson.loads(entry.metadata))
        found = b"" if labels is None else b',"labels":' + orjson.dumps(labels)
        if len(_labels_by_file) >= MAX_CACHED_LABELS:
            _labels_by_file.clear()
        _labels_by_file[entry.metadata_location] = found
    return found


def _with_refs_only(metadata: bytes) -> bytes:
    may_block()
    return orjson.dumps(refs_only(orjson.loads(metadata)))


def _options(call: Call, ident: TableIdent, location: str) -> Mapping[str, str]:
    """Clients that use remote signing get no secrets."""
    options = call.operations.iceberg_access.storage_options(call.caller, ident, location)
    is_signed = call.operations.iceberg_signing.is_enabled and wants_only_signing(call.headers)
    return without_secrets(options) if is_signed else options


def _config(call: Call, table: tuple[str, ...], options: Mapping[str, str]) -> dict[str, str]:
    """Clients without credentials are told to use remote signing if it is enabled."""
    config = storage_config(options)
    if call.operations.iceberg_signing.is_enabled and SECRET_KEY not in options:
        return config | signing_config(table_ident(table))
    return config


def _metadata_in(body: bytes) -> Document:
    metadata: Document = orjson.loads(body + b"}")["metadata"]
    return metadata


def _end(
    location: str, options: Mapping[str, str], config: Mapping[str, str], metadata: Callable[[], Document]
) -> bytes:
    """The end of a LoadTableResult; old clients read `config`, newer ones prefer the other fields."""
    end: dict[str, Any] = {"config": config}
    if SIGNING_ENABLED in config:
        # Clients repeat it in each request to sign, so nothing is signed for another table of that name.
        end["remote-signing-config"] = {"properties": {TABLE_UUID: metadata()[TABLE_UUID]}}
    if credentials := storage_credentials(location, options):
        end["storage-credentials"] = credentials
    return b"," + orjson.dumps(end)[1:]


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    if not body:
        return Response(status_code=status, headers=headers)
    return Response(body, status, headers, JSON)


def tag_of(metadata_location: str, snapshots: Snapshots, config: Mapping[str, str]) -> str:
    """Includes the configuration: a 304 must not leave a client with expired credentials."""
    parts = [metadata_location, snapshots.value, config]
    content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.blake2b(content, digest_size=TAG_BYTES).hexdigest()}"'


def client_has_tag(call: Call, tag: str) -> bool:
    """Whether the client already has the response with this tag (If-None-Match)."""
    client_tags = [
        listed.strip().removeprefix("W/")
        for header in call.headers.getlist("if-none-match")
        for listed in header.split(",")
    ]
    if "*" in client_tags:
        raise InvalidInput("If-None-Match", "must list ETags of earlier responses; '*' is not supported")
    return tag in client_tags


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
SIGNING_ENABLED: Final = "s3.remote-signing-enabled"
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
        SIGNING_ENABLED: "true",
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
        properties=body.texts_by_name("properties") or {},
    )


def signed_json(signed: SignedRequest) -> dict[str, Any]:
    return {"uri": signed.uri, "headers": {name: list(values) for name, values in signed.headers.items()}}


def _headers(headers: Fields | None) -> dict[str, Sequence[str]]:
    if headers is None:
        raise InvalidInput("headers", "is missing; it must be an object of lists of strings")
    return {name: headers.texts(name) or () for name in headers.values}
