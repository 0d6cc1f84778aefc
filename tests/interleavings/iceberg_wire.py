"""Requests of the model as they go over the wire, and what comes back."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

import orjson

from tests.iceberg_requests import SCHEMA, new_key, new_table, new_view, version_of
from tests.interleavings.iceberg_model import (
    MAIN_BRANCH,
    SCHEMA_ID,
    SQL,
    Change,
    Commit,
    CommitAll,
    Content,
    Create,
    Drop,
    Kind,
    Load,
    Named,
    Operation,
    Overwrite,
    Rename,
    Request,
)
from tests.interleavings.iceberg_server import Sent

# What the catalog adds to the properties of a new table.
DEFAULTS: Final = ("write.parquet.compression-codec",)


@dataclass
class Wire:
    """`locations` are those of metadata that can be registered, by content."""

    namespace: str
    locations: dict[Content, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    began_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def sent(self, request: Request) -> Sent:
        """The same bytes whenever the same request is sent."""
        key = None if request.key is None else self.keys.setdefault(request.key, new_key())
        method, path, body, query = self._wire(request.does)
        return Sent(method, path, body, key, query)

    def _wire(self, does: Operation) -> tuple[str, str, Any, str]:
        at = f"/namespaces/{self.namespace}"
        match does:
            case Commit(change):
                return "POST", f"{at}/{change.kind.value}/{change.name}", self._commit(change), ""
            case CommitAll(changes):
                all_changes = [
                    {"identifier": self._named(change.name), **self._commit(change)} for change in changes
                ]
                return "POST", "/transactions/commit", {"table-changes": all_changes}, ""
            case Create(name, named):
                return "POST", f"{at}/{named.kind.value}", self._new(name, named), ""
            case Overwrite(name, content):
                # In another spelling than the catalog's own, to be taken for the same file.
                location = f"/{key_of(self.locations[content])}"
                body = {"name": name, "metadata-location": location, "overwrite": True}
                return "POST", f"{at}/register", body, ""
            case Drop(name, kind, removes_files):
                query = "purgeRequested=true" if removes_files else ""
                return "DELETE", f"{at}/{kind.value}/{name}", None, query
            case Rename(source, target, kind):
                body = {"source": self._named(source), "destination": self._named(target)}
                return "POST", f"/{kind.value}/rename", body, ""
            case Load(name, kind):
                return "GET", f"{at}/{kind.value}/{name}", None, ""
            case _:
                assert_never(does)

    def _named(self, name: str) -> Mapping[str, Any]:
        return {"namespace": [self.namespace], "name": name}

    def _new(self, name: str, named: Named) -> Mapping[str, Any]:
        properties = {key: value for key, value in named.content if not key.startswith("#")}
        if named.kind is Kind.VIEW:
            version = self._version(dict(named.content)[SQL])
            return {**new_view(name, properties=properties), "view-version": version}
        return new_table(name, properties)

    def _version(self, sql: str) -> Mapping[str, Any]:
        return {**version_of(sql), "timestamp-ms": self.began_ms}

    def _commit(self, change: Change) -> Mapping[str, Any]:
        updates: list[Any] = []
        properties = {key: value for key, value in change.sets if not key.startswith("#")}
        if properties:
            updates.append({"action": "set-properties", "updates": properties})
        for key, value in change.sets:
            updates.extend(self._updates(key, value))
        return {"requirements": [_requirement(*wanted) for wanted in change.requires], "updates": updates}

    def _updates(self, key: str, value: str) -> Sequence[Mapping[str, Any]]:
        match key:
            case "#schema":
                fields = [{**SCHEMA["fields"][0], "name": f"id{value}"}]
                return (
                    {"action": "add-schema", "schema": {**SCHEMA, "fields": fields}},
                    {"action": "set-current-schema", "schema-id": -1},
                )
            case "#main":
                snapshot = {
                    "snapshot-id": int(value),
                    "sequence-number": 1,
                    "timestamp-ms": self.began_ms,
                    "summary": {"operation": "append"},
                    "manifest-list": f"file:///nowhere/{value}.avro",
                }
                ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
                return (
                    {"action": "add-snapshot", "snapshot": snapshot},
                    {**ref, "snapshot-id": int(value)},
                )
            case "#sql":
                version = {**self._version(value), "schema-id": -1}
                return (
                    {"action": "add-schema", "schema": SCHEMA},
                    {"action": "add-view-version", "view-version": version},
                    {"action": "set-current-view-version", "view-version-id": -1},
                )
            case _:
                return ()


def _requirement(key: str, value: str | None) -> Mapping[str, Any]:
    if key == SCHEMA_ID:
        return {"type": "assert-current-schema-id", "current-schema-id": int(value or 0)}
    assert key == MAIN_BRANCH, key
    snapshot_id = None if value is None else int(value)
    return {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot_id}


def content_of(metadata: Any) -> Content:
    found = dict(metadata.get("properties") or {})
    for key in DEFAULTS:
        found.pop(key, None)
    if "view-uuid" in metadata:
        versions = {version["version-id"]: version for version in metadata["versions"]}
        found[SQL] = versions[metadata["current-version-id"]]["representations"][0]["sql"]
        return frozenset(found.items())
    found[SCHEMA_ID] = str(metadata["current-schema-id"])
    if "main" in metadata.get("refs", {}):
        found[MAIN_BRANCH] = str(metadata["refs"]["main"]["snapshot-id"])
    return frozenset(found.items())


def key_of(location: str) -> str:
    return urlsplit(location).path.removeprefix("/")


def stored_state(location: str) -> Any:
    try:
        data = Path(f"/{key_of(location)}").read_bytes()
    except FileNotFoundError as error:
        raise AssertionError(f"{location} is not there") from error
    return orjson.loads(gzip.decompress(data) if location.endswith(".gz.metadata.json") else data)


def files_of(state: Any) -> set[str]:
    log = state["metadata"].get("metadata-log") or ()
    return {key_of(place) for place in (state["metadata-location"], *(old["metadata-file"] for old in log))}
