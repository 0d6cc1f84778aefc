"""Tokens for plans and parts of plans: clients send them back, so the server keeps no state."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import orjson

CHECK_BYTES: Final = 12
MAX_TOKEN_LENGTH: Final = 2**20
MAX_PAYLOAD_BYTES: Final = 16 * 2**20


def encode(payload: Mapping[str, Any], table_id: UUID) -> str:
    """Tokens are checksummed, not secret: a client could request everything in them directly."""
    packed = zlib.compress(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS), 9)
    return base64.urlsafe_b64encode(_check(packed, table_id) + packed).decode().rstrip("=")


def decode(token: str, table_id: UUID) -> dict[str, Any] | None:
    """None unless `encode` made the token for this table."""
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        if raw[:CHECK_BYTES] != _check(raw[CHECK_BYTES:], table_id):
            return None
        payload: dict[str, Any] = orjson.loads(_decompressed(raw[CHECK_BYTES:]))
    except (binascii.Error, ValueError, zlib.error):
        return None
    return payload


def _decompressed(data: bytes) -> bytes:
    reader = zlib.decompressobj()
    payload = reader.decompress(data, MAX_PAYLOAD_BYTES)
    if not reader.eof:
        raise ValueError("is cut off or too long")
    return payload


def _check(packed: bytes, table_id: UUID) -> bytes:
    return hashlib.sha256(table_id.bytes + packed).digest()[:CHECK_BYTES]
