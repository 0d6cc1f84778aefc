"""Table files in an S3-compatible object store."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tidemill.catalog.model.callers import StorageAccess
from tidemill.errors import InvalidInput, StorageFull, Unavailable
from tidemill.storage.s3_client import (
    ATTEMPTS,
    Interrupted,
    ObjectStoreEnvironment,
    Refused,
    translated,
)
from tidemill.storage.vending import CredentialVendor
from tidemill.storage.warehouse import JOBS_DIRECTORY, check_removable

SCHEME: Final = "s3://"
# Lance parses locations as URLs and would not treat these as part of a key.
FORBIDDEN_CHARACTERS: Final = re.compile(r"[%?#\\\x00-\x1f\x7f]")
ALREADY_EXISTS: Final = "PreconditionFailed"
# Another conditional put of the same key is in progress; which one wins is still open.
PUT_CONFLICT: Final = "ConditionalRequestConflict"
PUT_ATTEMPTS: Final = 5
MAX_BACKOFF_SECONDS: Final = 0.1
CONDITION_UNSUPPORTED: Final = frozenset({"NotImplemented", "InvalidArgument"})


@dataclass(frozen=True, slots=True)
class S3Prefix:
    """A bucket and the key prefix of the warehouse in it; an empty prefix means the whole bucket."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    def parts_of(self, key: str) -> Sequence[str]:
        """The path segments of a key below the prefix. Raises InvalidInput for a key outside it."""
        start = f"{self.prefix}/" if self.prefix else ""
        parts = key.removeprefix(start).split("/")
        is_invalid = any(part in ("", ".", "..") for part in parts)
        if is_invalid or not key.startswith(start) or parts[0] == JOBS_DIRECTORY:
            raise InvalidInput("path", f"{key!r} is outside the warehouse {self.uri}")
        return parts


def parse_prefix(uri: str) -> S3Prefix:
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    prefix = prefix.rstrip("/")
    is_invalid = any(part in ("", ".", "..") for part in prefix.split("/")) if prefix else False
    if not uri.startswith(SCHEME) or not bucket or is_invalid or FORBIDDEN_CHARACTERS.search(uri):
        raise InvalidInput("warehouse", f"{uri!r} is not of the form s3://bucket/prefix")
    return S3Prefix(bucket, prefix)


class S3TableFiles:
    """Objects under one prefix of a bucket; nothing outside the prefix is ever touched."""

    def __init__(
        self, root: S3Prefix, client: Any, environment: ObjectStoreEnvironment, vendor: CredentialVendor
    ) -> None:
        self._root = root
        self._client = client
        self._environment = environment
        self._vendor = vendor

    def location_of(self, table_id: UUID) -> str:
        return f"{self._root.uri}/{table_id}.lance"

    def key_of(self, location: str) -> str:
        if FORBIDDEN_CHARACTERS.search(location):
            raise InvalidInput("location", f"{location} is outside the warehouse {self._root.uri}")
        return self.key_of_file(location).rstrip("/")

    def key_of_file(self, location: str) -> str:
        start = f"{SCHEME}{self._root.bucket}/"
        if not location.startswith(start):
            raise InvalidInput("location", f"{location} is outside the warehouse {self._root.uri}")
        return location.removeprefix(start)

    def is_inside(self, location: str) -> bool:
        try:
            return bool(self._root.parts_of(self.key_of(location)))
        except InvalidInput:
            return False

    def size_of(self, key: str) -> int | None:
        try:
            with translated(key):
                return int(self._client.head_object(**self._object(key))["ContentLength"])
        except FileNotFoundError:
            return None

    def list_names(self, key: str) -> Sequence[str]:
        start = f"{self._checked(key)}/"
        return sorted(
            name
            for page in self._pages(start, Delimiter="/")
            for key in page
            if (name := key.removeprefix(start))
        )

    def read(self, key: str) -> bytes:
        """Retries if the connection breaks inside the body; boto3 only retries up to the headers."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._read_once(key)
            except Interrupted:
                time.sleep(random.uniform(0, MAX_BACKOFF_SECONDS))
        return self._read_once(key)

    def _read_once(self, key: str) -> bytes:
        with translated(key):
            return bytes(self._client.get_object(**self._object(key))["Body"].read())

    def write(self, key: str, data: bytes) -> None:
        with translated(key):
            self._client.put_object(**self._object(key), Body=data)

    def copy_if_absent(self, source_key: str, target_key: str, content: bytes | None = None) -> bool:
        """Uploads the content: most stores support conditional puts, few support conditional copies."""
        self._checked(source_key)
        data = self.read(source_key) if content is None else content
        for attempt in range(PUT_ATTEMPTS):
            try:
                with translated(target_key):
                    self._client.put_object(**self._object(target_key), Body=data, IfNoneMatch="*")
            except Refused as refusal:
                if refusal.store_code == ALREADY_EXISTS:
                    return False
                if refusal.store_code in CONDITION_UNSUPPORTED:
                    return self._write_after_check(target_key, data)
                if refusal.store_code != PUT_CONFLICT or attempt == PUT_ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0, MAX_BACKOFF_SECONDS))
            else:
                return True
        raise AssertionError("the last attempt returns or raises")

    def remove(self, key: str) -> None:
        with translated(key):
            self._client.delete_object(**self._object(key))

    def check_reachable(self) -> None:
        """Does nothing: an unreachable store fails on the next write."""

    def make_directory(self, key: str) -> None:
        """Does nothing: object stores have no directories."""

    def remove_table(self, location: str) -> None:
        key = self.key_of(location)
        check_removable(location, self._root.parts_of(key))
        for page in self._pages(f"{key}/"):
            self._remove_all(page)

    def vend(self, location: str, access: StorageAccess = StorageAccess.WRITE) -> Mapping[str, str]:
        """Endpoint options and, for a table in the warehouse, credentials restricted to that table."""
        options = _public_options(self._environment)
        if not self.is_inside(location):
            return options
        return {**options, **self._vendor.credentials(self._root.bucket, self.key_of(location), access)}

    def check_readable(self) -> None:
        try:
            with translated(self._root.uri):
                start = _key_under(self._root, "")
                self._client.list_objects_v2(Bucket=self._root.bucket, Prefix=start, MaxKeys=1)
        except (FileNotFoundError, Unavailable) as error:
            raise Unavailable(f"The warehouse {self._root.uri} cannot be read: {error}") from error

    def check_writable(self) -> None:
        """An upload that is not completed: unlike an object, it leaves no version in a versioned bucket."""
        probe = {"Bucket": self._root.bucket, "Key": _key_under(self._root, ".probe")}
        try:
            with translated(self._root.uri):
                upload = self._client.create_multipart_upload(**probe)
                self._client.abort_multipart_upload(**probe, UploadId=upload["UploadId"])
        except StorageFull:
            raise
        except (FileNotFoundError, Unavailable) as error:
            raise Unavailable(f"The warehouse {self._root.uri} is not writable: {error}") from error

    def _write_after_check(self, key: str, data: bytes) -> bool:
        """For stores without conditional puts.

        Among servers the database has already decided; writers that bypass the catalog may be overwritten.
        """
        if self.size_of(key) is not None:
            return False
        self.write(key, data)
        return True

    def _pages(self, start: str, **options: str) -> Iterator[Sequence[str]]:
        """Keys that start with a prefix, up to a thousand at a time."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._root.bucket, Prefix=start, **options
        )
        with translated(start):
            for page in pages:
                yield [entry["Key"] for entry in page.get("Contents", ())]

    def _remove_all(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        with translated(keys[0]):
            response = self._client.delete_objects(
                Bucket=self._root.bucket,
                Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
            )
        if failures := response.get("Errors"):
            first = failures[0]
            raise Unavailable(f"{len(failures)} objects were not removed: {first['Key']}: {first['Code']}")

    def _object(self, key: str) -> dict[str, str]:
        return {"Bucket": self._root.bucket, "Key": self._checked(key)}

    def _checked(self, key: str) -> str:
        self._root.parts_of(key)
        return key


def _key_under(root: S3Prefix, name: str) -> str:
    return f"{root.prefix}/{name}" if root.prefix else name


def _public_options(environment: ObjectStoreEnvironment) -> dict[str, str]:
    options: dict[str, str] = {}
    if environment.endpoint is not None:
        options["aws_endpoint"] = environment.endpoint
    if environment.region is not None:
        options["aws_region"] = environment.region
    if environment.is_plain_http:
        options["allow_http"] = "true"
    return options
