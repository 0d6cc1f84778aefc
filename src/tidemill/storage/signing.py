"""Signs S3 requests with the server's own credentials, restricted to the objects of one table."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import ErrorCode, InvalidInput, TidemillError, Unavailable
from tidemill.storage.s3 import SCHEME, S3Prefix

REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
PAYLOAD_HASH: Final = re.compile(r"[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER")
HASH_HEADER: Final = "x-amz-content-sha256"
# Headers that the signature sets itself, and those that decide where a request goes.
REPLACED: Final = frozenset(
    {"authorization", "date", "host", "x-amz-date", "x-amz-security-token", HASH_HEADER}
)
# These would grant access beyond what a session restricted to the table could.
REFUSED: Final = re.compile(r"x-amz-(acl|grant-.*|tagging.*|object-lock-.*|bypass-.*|website-.*)")
SIGNED: Final = frozenset({"content-md5", "content-type"})
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")


class Keys(Protocol):
    """A snapshot of botocore credentials."""

    access_key: str
    secret_key: str
    token: str | None


def own_keys() -> Callable[[], Keys]:
    """Credentials from the standard AWS environment, refreshed when they expire."""
    credentials = importlib.import_module("boto3").Session().get_credentials()
    if credentials is None:
        raise Unavailable("No AWS credentials are available to sign requests")

    def current() -> Keys:
        keys: Keys = credentials.get_frozen_credentials()
        return keys

    return current


class S3RequestSigner:
    """Signs requests for objects below a table's location, at the warehouse's endpoint (None: Amazon's)."""

    def __init__(self, root: S3Prefix, endpoint: str | None, keys: Callable[[], Keys]) -> None:
        self._root = root
        self._endpoint = endpoint
        self._keys = keys

    def sign(self, location: str, request: SignRequest) -> SignedRequest:
        if not REGION.fullmatch(request.region):
            raise InvalidInput("region", f"{request.region!r:.60} is not the name of a region")
        target = read_target(request.uri, self._root.bucket, self._endpoint)
        headers = _checked_headers(request.headers)
        check_target(self._root, location, request, target)
        signed = self._signed(request, target, headers)
        uncovered = {name: values for name, values in headers.items() if name.lower() not in signed}
        return SignedRequest(
            url_of(target), {**uncovered, **{name: (value,) for name, value in signed.items()}}
        )

    def _signed(
        self, request: SignRequest, target: Target, headers: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """The signature headers and the headers it covers, in lower case."""
        auth, awsrequest = (importlib.import_module(f"botocore.{name}") for name in ("auth", "awsrequest"))
        covered = {
            name.lower(): ",".join(values)
            for name, values in headers.items()
            if name.lower() in SIGNED or name.lower().startswith("x-amz-")
        }
        message = awsrequest.AWSRequest(request.method, url_of(target), headers=covered)
        signer = auth.S3SigV4Auth(self._keys(), "s3", request.region)
        # The client keeps the body; botocore would hash an empty one instead.
        payload = _payload_hash(request)
        signer.payload = lambda _: payload
        signer.add_auth(message)
        return {name.lower(): value for name, value in message.headers.items()} | {"host": target.host}


def _checked_headers(headers: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    seen: set[str] = set()
    for name, values in headers.items():
        if (
            not TOKEN.fullmatch(name)
            or name.lower() in seen
            or any(_has_control_characters(value) for value in values)
        ):
            raise InvalidInput("headers", f"{name!r:.60} is repeated or is not a valid header")
        if REFUSED.fullmatch(name.lower()):
            raise InvalidInput("headers", f"{name} is not signed here; leave it out")
        seen.add(name.lower())
    return {name: values for name, values in headers.items() if name.lower() not in REPLACED}


def _has_control_characters(value: str) -> bool:
    return any(ord(character) < 0x20 or ord(character) == 0x7F for character in value.replace("\t", " "))


def _payload_hash(request: SignRequest) -> str:
    """The hash of a checked body, so that no other can be sent instead; otherwise the client's own hash."""
    if request.body is not None:
        return hashlib.sha256(request.body.encode()).hexdigest()
    hashes = [
        value for name, values in request.headers.items() if name.lower() == HASH_HEADER for value in values
    ]
    if not hashes:
        return UNSIGNED
    if len(hashes) != 1 or not PAYLOAD_HASH.fullmatch(hashes[0]):
        raise InvalidInput(f"headers.{HASH_HEADER}", f"must be the hash of the body or {UNSIGNED}")
    return hashes[0]


AMAZON_HOST: Final = re.compile(
    r"s3(?:\.dualstack)?(?:[.-][a-z]{2}(?:-[a-z]+){1,3}-[0-9])?\.amazonaws\.com(?:\.cn)?"
)
SCHEME_ALIASES: Final = re.compile(r"s3[an]?://")
UNRESERVED: Final = "-_.~"
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\\]")
OBJECT_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
# For multipart uploads. Other aspects of an object (its ACL, tags, versions) are not for clients of tables.
OBJECT_PARAMETERS: Final = frozenset(
    {"partNumber", "uploadId", "uploads", "x-id", "max-parts", "part-number-marker"}
)
LISTING_PARAMETERS: Final = frozenset(
    {
        "continuation-token",
        "delimiter",
        "encoding-type",
        "fetch-owner",
        "list-type",
        "marker",
        "max-keys",
        "prefix",
        "start-after",
        "x-id",
    }
)
COPY_SOURCE: Final = "x-amz-copy-source"


class OutsideTable(TidemillError):
    """A request for objects that do not belong to the table."""

    code = ErrorCode.PERMISSION_DENIED

    def __init__(self, what: str, location: str) -> None:
        super().__init__(f"{what:.300} is not signed: it lies outside the table's location {location}")


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed request URI; `path_start` precedes the key, and an empty key means the bucket itself."""

    scheme: str
    host: str
    path_start: str
    key: str
    query: tuple[tuple[str, str], ...]


def read_target(uri: str, bucket: str, endpoint: str | None) -> Target:
    """Parses a path-style or virtual-hosted URI. Raises InvalidInput if it is not in the bucket."""
    try:
        parts = urlsplit(uri)
        is_invalid = bool(parts.fragment or parts.username or parts.password or CONTROL.search(uri))
    except ValueError as error:
        raise InvalidInput("uri", f"{uri!r:.200} is not a URI") from error
    if is_invalid or not uri.isascii() or parts.scheme not in {"http", "https"}:
        raise InvalidInput("uri", f"{uri!r:.200} is not a plain URI of http or https")
    path = _decoded(parts.path.removeprefix("/"))
    host = parts.netloc.lower()
    query = _query(parts.query)
    if host.startswith(f"{bucket}.") and _is_store(host.removeprefix(f"{bucket}."), parts.scheme, endpoint):
        return Target(parts.scheme, host, "/", path, query)
    first_segment, _, key = path.partition("/")
    if first_segment != bucket or not _is_store(host, parts.scheme, endpoint):
        raise InvalidInput("uri", f"{uri!r:.200} is not in the bucket {bucket} of this warehouse")
    return Target(parts.scheme, host, f"/{bucket}/", key, query)


def url_of(target: Target) -> str:
    """The URI in the canonical form over which S3 computes signatures."""
    path = target.path_start + quote(target.key, safe=f"/{UNRESERVED}")
    pairs = [f"{quote(key, safe=UNRESERVED)}={quote(value, safe=UNRESERVED)}" for key, value in target.query]
    return f"{target.scheme}://{target.host}{path}" + (f"?{'&'.join(sorted(pairs))}" if pairs else "")


def check_target(root: S3Prefix, location: str, request: SignRequest, target: Target) -> None:
    """Raises OutsideTable, or InvalidInput for operations that table clients do not need."""
    table_key = _table_key(root, location)
    query = dict(target.query)
    if target.key:
        _check_object(request, query)
        _check_inside(table_key, target.key, location)
        for source in _values(request, COPY_SOURCE):
            bucket, _, key = _decoded(source.removeprefix("/")).partition("/")
            _check_inside(table_key, key if bucket == root.bucket else "", location)
    elif request.method == "POST" and set(query) - {"x-id"} == {"delete"}:
        for key in _deleted_keys(request.body):
            _check_inside(table_key, key, location)
    elif request.method == "GET" and set(query) - {"x-id"} == {"location"}:
        return
    elif request.method == "GET" and "prefix" in query and set(query) <= LISTING_PARAMETERS:
        _check_listing(table_key, query["prefix"], location)
    else:
        raise InvalidInput(
            "uri", f"{request.method} of the bucket with {sorted(query)!r:.100} is not signed here"
        )


def _check_object(request: SignRequest, query: dict[str, str]) -> None:
    if request.method not in OBJECT_METHODS or not set(query) <= OBJECT_PARAMETERS:
        raise InvalidInput("uri", f"{request.method} with {sorted(query)!r:.100} is not signed here")


def _table_key(root: S3Prefix, location: str) -> str:
    start = f"{SCHEME}{root.bucket}/"
    plain = SCHEME_ALIASES.sub(SCHEME, location, count=1).rstrip("/")
    if not plain.startswith(start):
        raise InvalidInput("location", f"{location} is not in the bucket {root.bucket}")
    key = plain.removeprefix(start)
    root.parts_of(key)
    return key


def _check_inside(table_key: str, key: str, location: str) -> None:
    if not key.startswith(f"{table_key}/") or any(part in {".", ".."} for part in key.split("/")):
        raise OutsideTable(key or "The source of the copy", location)


def _check_listing(table_key: str, prefix: str, location: str) -> None:
    """The prefix must include the slash after the table's key, or it would also match sibling directories."""
    if not prefix.startswith(f"{table_key}/") or any(part in {".", ".."} for part in prefix.split("/")):
        raise OutsideTable(f"The prefix {prefix!r}", location)


def _deleted_keys(body: str | None) -> Sequence[str]:
    """The keys in a DeleteObjects body; rejects anything that another XML parser might read differently."""
    if not body or "<!" in body:
        raise InvalidInput("body", "is missing: deleting objects is signed by the keys it deletes")
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise InvalidInput("body", f"is not XML ({error})") from error
    objects = [child for child in root if _tag(child) == "Object"]
    fields = [[_tag(field) for field in entry] for entry in objects]
    known = {"Object", "Quiet"}
    if _tag(root) != "Delete" or any(_tag(child) not in known for child in root) or not objects:
        raise InvalidInput("body", "must be a Delete with objects")
    if any(names != ["Key"] for names in fields):
        raise InvalidInput("body", "has to name each object by its key alone")
    return [entry[0].text or "" for entry in objects]


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _values(request: SignRequest, header: str) -> list[str]:
    return [value for name, values in request.headers.items() if name.lower() == header for value in values]


def _is_store(host: str, scheme: str, endpoint: str | None) -> bool:
    if endpoint is None:
        return scheme == "https" and AMAZON_HOST.fullmatch(host) is not None
    parts = urlsplit(endpoint)
    return (scheme, host) == (parts.scheme, parts.netloc.lower())


def _query(raw: str) -> tuple[tuple[str, str], ...]:
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", separator="&")
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput("uri", "has a query that is not percent-encoded UTF-8") from error
    if len({key for key, _ in pairs}) != len(pairs) or ";" in raw:
        raise InvalidInput("uri", "has a repeated query parameter")
    return tuple(pairs)


def _decoded(text: str) -> str:
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("uri", "is not percent-encoded UTF-8") from error
    if CONTROL.search(decoded):
        raise InvalidInput("uri", "has control characters or backslashes")
    return decoded
