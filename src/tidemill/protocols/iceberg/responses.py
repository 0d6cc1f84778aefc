"""Answers with the state of a table or view: put together from stored bytes, with credentials added last."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.nonblocking import may_block
from tidemill.errors import Unavailable
from tidemill.iceberg.metadata.tables import refs_only
from tidemill.iceberg.model.entries import Entry, StagedTable
from tidemill.protocols.http.call import Call
from tidemill.protocols.iceberg.credentials import (
    SECRET,
    signing_config,
    storage_config,
    storage_credentials,
    wants_signatures_alone,
    without_secrets,
)
from tidemill.protocols.iceberg.etags import Snapshots, is_known, tag_of

JSON: Final = "application/json"
COMPRESSED_FROM: Final = 1024
QUICKLY: Final = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with, apart from what is different every time.

    `place` is what credentials are vended for: with `is_open` the body lacks its end, where they belong.
    `tagged` is the metadata file that the answer's tag stands for, `table` the levels of the table's name.
    """

    status: int
    body: bytes = b""
    place: str | None = None
    tagged: str | None = None
    table: tuple[str, ...] = ()
    is_open: bool = False

    def to_bytes(self) -> bytes:
        is_packed = len(self.body) >= COMPRESSED_FROM
        head = orjson.dumps([self.status, self.place, self.tagged, self.table, self.is_open, is_packed])
        return head + b"\n" + (zlib.compress(self.body, QUICKLY) if is_packed else self.body)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Answer:
        head, _, body = stored.partition(b"\n")
        status, place, tagged, table, is_open, is_packed = orjson.loads(head)
        return cls(status, zlib.decompress(body) if is_packed else body, place, tagged, tuple(table), is_open)


NO_CONTENT: Final = Answer(204)


def json_answer(value: Any, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(value))


def loaded_table(entry: Entry) -> Answer:
    """A LoadTableResult."""
    body = _state(entry.metadata_location, entry.metadata)
    return Answer(200, body, entry.location, entry.metadata_location, entry.ident.levels, is_open=True)


def staged_table(staged: StagedTable) -> Answer:
    """A LoadTableResult without metadata-location: there is no such file yet."""
    body = b'{"metadata":' + staged.metadata
    return Answer(200, body, staged.location, None, staged.ident.levels, is_open=True)


def committed_table(entry: Entry) -> Answer:
    """A CommitTableResponse."""
    body = _state(entry.metadata_location, entry.metadata) + b"}"
    return Answer(200, body, entry.location, entry.metadata_location, entry.ident.levels)


def unregistered_table(entry: Entry) -> Answer:
    return Answer(200, _state(entry.metadata_location, entry.metadata) + b"}")


def loaded_view(entry: Entry) -> Answer:
    """A LoadViewResult."""
    return Answer(200, _state(entry.metadata_location, entry.metadata) + b',"config":{}}')


def respond_again(call: Call, answer: Answer) -> Response:
    """What was answered before, with credentials only if the table is still where it was."""
    if answer.place is None or call.operations.iceberg_access.is_current_location(
        table_ident(answer.table), answer.place
    ):
        return respond(call, answer)
    return _response(answer.status, answer.body + (b',"config":{}}' if answer.is_open else b""))


def respond(call: Call, answer: Answer) -> Response:
    if answer.place is None:
        return _response(answer.status, answer.body)
    try:
        options = _options(call, table_ident(answer.table), answer.place)
    except Unavailable:
        # What was asked for is done; credentials can be asked for again, a commit better not.
        options = None
    headers = {}
    config = _config(call, answer.table, options or {})
    if answer.tagged is not None and options is not None:
        headers["etag"] = tag_of(answer.tagged, Snapshots.ALL, config)
    end = _access(answer.place, options or {}, config) if answer.is_open else b""
    return _response(answer.status, answer.body + end, headers)


def respond_loaded(call: Call, entry: Entry, snapshots: Snapshots) -> Response:
    """304 without a body when the client says that it has this state in this form."""
    options = _options(call, entry.ident, entry.location)
    config = _config(call, entry.ident.levels, options)
    tag = tag_of(entry.metadata_location, snapshots, config)
    headers = {"etag": tag}
    if is_known(call, tag):
        return Response(status_code=304, headers=headers)
    metadata = entry.metadata if snapshots is Snapshots.ALL else _with_refs_only(entry.metadata)
    body = _state(entry.metadata_location, metadata) + _access(entry.location, options, config)
    return _response(200, body, headers)


def _state(metadata_location: str, metadata: bytes) -> bytes:
    return b'{"metadata-location":' + orjson.dumps(metadata_location) + b',"metadata":' + metadata


def _with_refs_only(metadata: bytes) -> bytes:
    may_block()
    return orjson.dumps(refs_only(orjson.loads(metadata)))


def _options(call: Call, ident: TableIdent, place: str) -> Mapping[str, str]:
    """Whoever can do with signatures gets no secret."""
    options = call.operations.iceberg_access.storage_options(call.caller, ident, place)
    is_signed = call.operations.iceberg_signing.is_enabled and wants_signatures_alone(call.headers)
    return without_secrets(options) if is_signed else options


def _config(call: Call, table: tuple[str, ...], options: Mapping[str, str]) -> dict[str, str]:
    """Where requests are signed, it is for those that get no credentials."""
    config = storage_config(options)
    if call.operations.iceberg_signing.is_enabled and SECRET not in options:
        return config | signing_config(table_ident(table))
    return config


def _access(place: str, options: Mapping[str, str], config: Mapping[str, str]) -> bytes:
    """The end of a LoadTableResult; old clients look into config, newer ones prefer the credentials."""
    told: dict[str, Any] = {"config": config}
    if credentials := storage_credentials(place, options):
        told["storage-credentials"] = credentials
    return b"," + orjson.dumps(told)[1:]


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    if not body:
        return Response(status_code=status, headers=headers)
    return Response(body, status, headers, JSON)
