"""Tags of tables as clients have them: another state, another form or other credentials make another tag."""

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
    """Which snapshots a client wants to see: all, or those that branches and tags point to."""

    ALL = "all"
    REFS = "refs"


def snapshots_of(call: Call) -> Snapshots:
    raw = call.query.get("snapshots")
    return read_choice(Snapshots, raw, "snapshots") if raw else Snapshots.ALL


def tag_of(metadata_location: str, snapshots: Snapshots, config: Mapping[str, str]) -> str:
    """The configuration is part of it: 304 must not leave a client with credentials that have ended."""
    parts = [metadata_location, snapshots.value, config]
    told = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.blake2b(told, digest_size=TAG_BYTES).hexdigest()}"'


def is_known(call: Call, tag: str) -> bool:
    """Whether the client says that it has this very answer."""
    given = [
        one.strip().removeprefix("W/")
        for header in call.headers.getlist("if-none-match")
        for one in header.split(",")
    ]
    if "*" in given:
        raise InvalidInput("If-None-Match", "has to list the tags of answers; '*' has no meaning here")
    return tag in given
