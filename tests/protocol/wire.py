"""The protocol by hand: Arrow streams, staged manifests, refusals, and tables seen from outside."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa

MAX_U64 = (1 << 64) - 1
FOOTER_BYTES = 16
VERSION_TAG = bytes([3 << 3])
# Field 1000, made of bytes.
UNKNOWN_TAG = b"\xc2\x3e"


def some_rows(first: int = 1, count: int = 3) -> pa.Table:
    numbers = list(range(first, first + count))
    vectors = pa.array([[float(number), 0.0] for number in numbers], pa.list_(pa.float32(), 2))
    return pa.table({"id": numbers, "text": [f"row {number}" for number in numbers], "vector": vectors})


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def check_refusal(answer: httpx.Response, status: int, code: int, field: str = "") -> None:
    """The protocol's own error form, flat, with the field in front."""
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert type(body["code"]) is int
    assert body.keys() == {"error", "code", "instance"}
    assert body["instance"] == answer.headers["x-request-id"]
    assert body["error"].startswith(f"{field}: " if field else ""), body["error"]


@dataclass(frozen=True)
class TableOnWire:
    """A table that is looked at and changed with plain requests."""

    http: httpx.Client
    namespace: str
    name: str

    @property
    def levels(self) -> list[str]:
        return [self.namespace, self.name]

    def post(self, action: str, body: Any = None, **options: Any) -> httpx.Response:
        path = f"/v1/table/{self.namespace}${self.name}/{action}"
        return self.http.post(path, **({"json": body} if body is not None else {}), **options)

    def asked(self, action: str, body: Any = None, **options: Any) -> Any:
        answer = self.post(action, body, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, rows: pa.Table) -> Any:
        return self.asked("create", content=stream(rows))

    def insert(self, rows: pa.Table) -> Any:
        return self.asked("insert", content=stream(rows))

    def versions(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.asked("version/list")["versions"]
        return listed

    def numbers(self) -> list[int]:
        return [version["version"] for version in self.versions()]

    @cached_property
    def directory(self) -> Path:
        return Path(self.asked("describe")["location"])

    def manifests(self) -> dict[str, bytes]:
        """The files of `_versions`, except the hint that clients write as they like."""
        return {
            path.name: path.read_bytes()
            for path in (self.directory / "_versions").iterdir()
            if not path.name.endswith(".json")
        }

    def state(self) -> Any:
        """What a refused request has to leave as it was: the rest of a table follows from its manifests."""
        return self.versions(), self.manifests()

    def stage(self, version: int, *, like: int = 1) -> Path:
        """A manifest for this version, unlike any other by its bytes, where clients put it first."""
        original = (self.directory / "_versions" / final_name(like)).read_bytes()
        path = self.directory / "_versions" / f"{final_name(version)}-{uuid4()}"
        path.write_bytes(renumbered(original, version))
        return path


def renumbered(manifest: bytes, version: int) -> bytes:
    """The manifest with another version and a random field that readers skip.

    The file ends in: the message's length and the message, its position, four bytes of format, the magic.
    A field that comes twice in a protobuf message has its last value.
    """
    footer = manifest[-FOOTER_BYTES:]
    (start,) = struct.unpack_from("<Q", footer)
    message = manifest[start + 4 : -FOOTER_BYTES]
    message += VERSION_TAG + varint(version) + UNKNOWN_TAG + bytes([16]) + uuid4().bytes
    return manifest[:start] + struct.pack("<I", len(message)) + message + footer


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def final_name(version: int) -> str:
    return f"{MAX_U64 - version:020}.manifest"


def key_of(path: Path) -> str:
    """Manifest paths on the wire are keys of an object store: no scheme, no leading slash."""
    return str(path).removeprefix("/")


def commit_body(version: int, staged: Path, /, **changes: Any) -> dict[str, Any]:
    body = {"version": version, "manifest_path": key_of(staged), "naming_scheme": "V2"}
    return body | changes
