"""ETags of loaded tables: they change with the state, the requested snapshots and the credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Final

import orjson

from tidemill.catalog.model.json_values import read_choice
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call

TAG_BYTES: Final = 16


class Snapshots(Enum):
    """Which snapshots a client wants: all, or only those that branches and tags point to."""

    ALL = "all"
    REFS = "refs"


def requested_snapshots(call: Call) -> Snapshots:
    raw = call.query.get("snapshots")
    return read_choice(Snapshots, raw, "snapshots") if raw else Snapshots.ALL


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
