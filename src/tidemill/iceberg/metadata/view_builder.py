"""A view's metadata document while the updates of one commit are applied to it.

`changed_view` (in `views`) opens a builder on the current document, applies every update, and calls `build`.
The base must stay intact, because `build` and the commit compare it with the result. Adding a schema or
version that already exists is not an error: clients repeat commits after a lost response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import as_int, next_id
from tidemill.iceberg.metadata.schemas import same_schema, stored_schema
from tidemill.iceberg.metadata.view_versions import dialects_of, same_version
from tidemill.iceberg.model.entries import Document

LAST_ADDED: Final = -1
HISTORY_SIZE: Final = "version.history.num-entries"
DEFAULT_HISTORY_SIZE: Final = 10
DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"


class ViewBuilder:
    """Shares unchanged values with the base, and never modifies them."""

    def __init__(self, base: Document, now_ms: int) -> None:
        self._base = base
        self._now_ms = now_ms
        self._document = dict(base)
        self._properties: dict[str, str] = dict(base.get("properties") or {})
        self._schemas: list[Document] = list(base["schemas"])
        self._versions: dict[int, Document] = {version["version-id"]: version for version in base["versions"]}
        self._current: int = base["current-version-id"]
        self._log_entry: Document | None = None
        self._added: set[int] = set()
        self._last_schema_id: int | None = None
        self._last_version_id: int | None = None
        self._is_changed = False

    def assign_uuid(self, uuid: str) -> None:
        if uuid.lower() != self._base["view-uuid"].lower():
            raise InvalidMetadata("Cannot reassign uuid")

    def upgrade_format(self, version: int) -> None:
        current: int = self._base["format-version"]
        if version < current:
            raise InvalidMetadata(f"Cannot downgrade v{current} view to v{version}")
        if version > current:
            raise InvalidMetadata(f"Unsupported format version: {version}")

    def set_location(self, location: str) -> None:
        if location != self._document["location"]:
            self._document["location"] = location
            self._is_changed = True

    def set_properties(self, updates: Mapping[str, str]) -> None:
        self._properties.update(updates)
        self._is_changed = self._is_changed or bool(updates)

    def remove_properties(self, removals: Sequence[str]) -> None:
        for key in removals:
            self._properties.pop(key, None)
        self._is_changed = self._is_changed or bool(removals)

    def add_schema(self, schema: Document) -> None:
        """An identical existing schema counts as added, so a retry succeeds."""
        schema_id = next((known["schema-id"] for known in self._schemas if same_schema(known, schema)), None)
        if schema_id is None:
            schema_id = next_id([known["schema-id"] for known in self._schemas], 0, "schema-id")
            self._schemas.append(stored_schema(schema, schema_id))
            self._is_changed = True
        self._last_schema_id = schema_id

    def add_version(self, version: Document) -> None:
        resolved = {**version, "schema-id": self._resolved_schema_id(version["schema-id"])}
        version_id = next(
            (known_id for known_id, known in self._versions.items() if same_version(known, resolved)), None
        )
        if version_id is None:
            version_id = next_id(list(self._versions), version["version-id"], "version-id")
            self._versions[version_id] = {**resolved, "version-id": version_id}
            self._added.add(version_id)
            self._is_changed = True
        self._last_version_id = version_id

    def set_current_version(self, version_id: int) -> None:
        if version_id == LAST_ADDED:
            if self._last_version_id is None:
                raise InvalidMetadata("Cannot set last version id: no current version id has been set")
            version_id = self._last_version_id
        if version_id == self._current:
            return
        if version_id not in self._versions:
            raise InvalidMetadata(f"Cannot set current version to unknown version: {version_id}")
        # An old version becomes current now, not at its creation time.
        is_new = version_id in self._added
        moment = self._versions[version_id]["timestamp-ms"] if is_new else self._now_ms
        self._log_entry = {"timestamp-ms": moment, "version-id": version_id}
        self._current = version_id
        self._is_changed = True

    def build(self) -> Document:
        """The new document, or the base itself if nothing has changed."""
        if not self._is_changed:
            return self._base
        self._check_dialects()
        retained = self._retained(history_size(self._properties))
        self._document["current-version-id"] = self._current
        self._document["schemas"] = self._schemas
        self._document["versions"] = [
            version for version_id, version in self._versions.items() if version_id in retained
        ]
        self._document["version-log"] = self._log(retained)
        self._document.pop("properties", None)
        return self._document | ({"properties": self._properties} if self._properties else {})

    def _resolved_schema_id(self, schema_id: int) -> int:
        if schema_id == LAST_ADDED:
            if self._last_schema_id is None:
                raise InvalidMetadata("Cannot set last added schema: no schema has been added")
            return self._last_schema_id
        if all(known["schema-id"] != schema_id for known in self._schemas):
            raise InvalidMetadata(f"Cannot add version with unknown schema: {schema_id}")
        return schema_id

    def _check_dialects(self) -> None:
        if self._properties.get(DROP_DIALECT_ALLOWED, "").lower() == "true":
            return
        before = dialects_of(self._versions[self._base["current-version-id"]])
        after = dialects_of(self._versions[self._current])
        if not before <= after:
            raise InvalidMetadata(
                f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
                f"Previous dialects: [{', '.join(sorted(before))}]\n"
                f"New dialects: [{', '.join(sorted(after))}]"
            )

    def _retained(self, size: int) -> Set[int]:
        """The latest versions; always includes the current one and all that this commit added."""
        needed = self._added | {self._current}
        others = sorted(self._versions.keys() - needed, reverse=True)
        return needed | set(others[: max(size - len(needed), 0)])

    def _log(self, retained: Set[int]) -> list[Document]:
        log: list[Document] = list(self._base["version-log"])
        if self._log_entry is not None:
            log.append(self._log_entry)
        if len(retained) == len(self._versions):
            return log
        # The log up to an expired version is dropped: with gaps it would be wrong.
        gone = (index for index, entry in enumerate(log) if entry["version-id"] not in retained)
        return log[max(gone, default=-1) + 1 :]


def history_size(properties: Mapping[str, str]) -> int:
    """How many versions to keep; readers check this too: an invalid value makes a view unreadable."""
    text = properties.get(HISTORY_SIZE, str(DEFAULT_HISTORY_SIZE))
    size = as_int(text)
    if size is None:
        raise InvalidMetadata(f"{HISTORY_SIZE} must be a number but was {text!r:.100}")
    if size <= 0:
        raise InvalidMetadata(f"{HISTORY_SIZE} must be positive but was {size}")
    return size
