"""Signs S3 requests with the server's own credentials, restricted to the objects of one table."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidemill.catalog.signing_ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput, Unavailable
from tidemill.storage.s3 import S3Prefix
from tidemill.storage.signed_targets import Target, check_target, read_target, url_of

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
