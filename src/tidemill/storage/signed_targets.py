"""Parses the URI of an S3 request and checks that it stays within a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

from tidemill.catalog.signing_ports import SignRequest
from tidemill.errors import ErrorCode, InvalidInput, TidemillError
from tidemill.storage.s3 import SCHEME, S3Prefix

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
