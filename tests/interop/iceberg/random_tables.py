"""Random tables, and updates made to fit the state that a table has."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.interop.iceberg.random_shapes import Json, column, order, properties, property_update, schema, spec


class NewTables:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def description(self) -> Json:
        rng = self._rng
        described = schema(rng)
        ids = [field["id"] for field in described["fields"]]
        body: Json = {"schema": described, "properties": properties(rng)}
        if rng.random() < 0.7:
            body["properties"]["format-version"] = rng.choice(("1", "2", "3", "3"))
        if rng.random() < 0.4:
            body["partition-spec"] = spec(rng, ids)
        if rng.random() < 0.3:
            body["write-order"] = order(rng, ids)
        if rng.random() < 0.15:
            body["location"] = f"<place>/t{rng.randrange(100)}" + rng.choice(("", "/"))
        if rng.random() < 0.15:
            body["stage-create"] = True
        return body

    def creation(self) -> Json:
        rng = self._rng
        described = schema(rng)
        ids = [field["id"] for field in described["fields"]]
        updates: list[Json] = [
            {"action": "assign-uuid", "uuid": "6e0f4a2c-1b7e-4c5d-9f21-0a1b2c3d4e5f"},
            {"action": "upgrade-format-version", "format-version": rng.choice((1, 2, 2, 3, 3))},
            {
                "action": "add-schema",
                "schema": described,
                "last-column-id": max([0, *(one for one in ids if isinstance(one, int))]),
            },
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": spec(rng, ids)},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": order(rng, ids)},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": f"<place>/c{rng.randrange(1000)}"},
            {"action": "set-properties", "updates": properties(rng)},
        ]
        if rng.random() < 0.2:
            del updates[rng.randrange(len(updates))]
        requirements: list[Json] = [{"type": "assert-create"}] if rng.random() < 0.9 else []
        if rng.random() < 0.05:
            requirements.append({"type": "assert-current-schema-id", "current-schema-id": 0})
        return {"requirements": requirements, "updates": updates}


class TableUpdates:
    """For a table in the state that its metadata tells."""

    def __init__(self, rng: random.Random, metadata: Mapping[str, Any], now_ms: int) -> None:
        self._rng = rng
        self._table = metadata
        self._now_ms = now_ms
        self._snapshots = [one["snapshot-id"] for one in metadata.get("snapshots") or []]
        self._added: list[int] = []

    def requirements(self) -> list[Json]:
        rng, table = self._rng, self._table
        off = rng.choice((0, 0, 0, 0, 0, 1))
        refs = table.get("refs") or {}
        name = rng.choice([*refs, "main", "other"])
        pool: list[Json] = [
            {"type": "assert-table-uuid", "uuid": "<uuid>"},
            {"type": "assert-table-uuid", "uuid": rng.choice(("<uuid>", "<UUID>", "nothing"))},
            {
                "type": "assert-ref-snapshot-id",
                "ref": name,
                "snapshot-id": (refs.get(name) or {}).get("snapshot-id") if off == 0 else 3,
            },
            {"type": "assert-create"} if off else {"type": "assert-table-uuid", "uuid": "<uuid>"},
            {"type": "assert-view-uuid", "uuid": "<uuid>"}
            if off
            else {"type": "ASSERT-TABLE-UUID", "uuid": "<uuid>"},
        ]
        for kind, key in (
            ("last-assigned-field-id", "last-column-id"),
            ("current-schema-id", "current-schema-id"),
            ("last-assigned-partition-id", "last-partition-id"),
            ("default-spec-id", "default-spec-id"),
            ("default-sort-order-id", "default-sort-order-id"),
        ):
            pool.append({"type": f"assert-{kind}", kind: (table.get(key) or 0) + off})
        return rng.sample(pool, rng.choice((0, 0, 1, 1, 2)))

    def some(self) -> list[Json]:
        updates: list[Json] = []
        for _ in range(self._rng.choice((0, 1, 1, 2, 3))):
            updates += self._one()
        return updates

    def _one(self) -> list[Json]:
        kinds: dict[Callable[[], list[Json]], float] = {
            self._schema: 5,
            self._spec: 5,
            self._order: 4,
            self._snapshot: 9,
            self._ref: 5,
            self._removal: 5,
            self._statistics: 3,
            self._properties: 4,
            self._identity: 2,
            self._key: 1,
        }
        [make] = self._rng.choices(list(kinds), list(kinds.values()))
        return make()

    def _ids(self) -> list[int]:
        current = self._table.get("current-schema-id")
        for known in self._table.get("schemas") or []:
            if known.get("schema-id") == current:
                return [field["id"] for field in known["fields"]]
        return [1]

    def _schema(self) -> list[Json]:
        rng = self._rng
        known = self._table.get("schemas") or []
        last = self._table.get("last-column-id", 0)
        if known and rng.random() < 0.25:
            added = {**rng.choice(known), "schema-id": rng.randrange(9)}
        elif known and rng.random() < 0.8:
            base = rng.choice(known)
            extra = {**column(rng, last + 1), "name": f"e{last + 1}"}
            kept = base["fields"][rng.choice((0, 0, 1)) :]
            added = {**base, "fields": [*kept, extra]}
        else:
            added = schema(rng)
        update: Json = {"action": "add-schema", "schema": added}
        if rng.random() < 0.5:
            update["last-column-id"] = last + rng.choice((0, 1, 1, -1))
        chosen = rng.choice((-1, -1, -1, 0, 1, 9))
        return [update, {"action": "set-current-schema", "schema-id": chosen}][: rng.choice((1, 2, 2))]

    def _spec(self) -> list[Json]:
        rng = self._rng
        known = self._table.get("partition-specs") or []
        if known and rng.random() < 0.25:
            added = {**rng.choice(known), "spec-id": rng.randrange(9)}
        else:
            first = rng.choice((1000, self._table.get("last-partition-id", 999) + 1))
            added = spec(rng, self._ids(), first)
        chosen = rng.choice((-1, -1, -1, 0, 1, 9))
        updates: list[Json] = [
            {"action": "add-spec", "spec": added},
            {"action": "set-default-spec", "spec-id": chosen},
        ]
        return updates[rng.choice((0, 0, 0, 1)) :][: rng.choice((1, 2, 2))]

    def _order(self) -> list[Json]:
        rng = self._rng
        known = self._table.get("sort-orders") or []
        reused = known and rng.random() < 0.25
        added = dict(rng.choice(known)) if reused else order(rng, self._ids())
        chosen = rng.choice((-1, -1, -1, 0, 1, 9))
        updates: list[Json] = [
            {"action": "add-sort-order", "sort-order": added},
            {"action": "set-default-sort-order", "sort-order-id": chosen},
        ]
        return updates[rng.choice((0, 0, 0, 1)) :][: rng.choice((1, 2, 2))]

    def _snapshot(self) -> list[Json]:
        rng, table = self._rng, self._table
        snapshot_id = rng.choice((rng.randrange(1, 6), rng.randrange(1, 10**15)))
        version = table.get("format-version", 2)
        current = table.get("current-snapshot-id")
        snapshot: Json = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": self._now_ms,
            "manifest-list": f"<place>/snap-{snapshot_id}.avro",
            "summary": {"operation": "append", "added-records": "1"},
        }
        if rng.random() < 0.8:
            snapshot["schema-id"] = table.get("current-schema-id", 0)
        if current not in (None, -1) and rng.random() < 0.8:
            snapshot["parent-snapshot-id"] = current
        if version > 1:
            late = rng.choice((1, 1, 1, 1, 0))
            snapshot["sequence-number"] = table.get("last-sequence-number", 0) + len(self._added) + late
        elif rng.random() < 0.1:
            snapshot["sequence-number"] = 1
        if version > 2 and rng.random() < 0.95:
            off = rng.choice((0, 0, 0, 0, 2, -1))
            snapshot["first-row-id"] = table.get("next-row-id", 0) + 10 * len(self._added) + off
            snapshot["added-rows"] = 10
        if rng.random() < 0.05:
            del snapshot["summary"]
        self._added.append(snapshot_id)
        updates: list[Json] = [{"action": "add-snapshot", "snapshot": snapshot}]
        if rng.random() < 0.7:
            ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
            updates.append({"action": "set-snapshot-ref", **ref})
        return updates

    def _ref(self) -> list[Json]:
        rng = self._rng
        refs = list(self._table.get("refs") or {})
        if rng.random() < 0.3:
            name = rng.choice([*refs, "nothing", "main"])
            return [{"action": "remove-snapshot-ref", "ref-name": name}]
        known = [*self._snapshots, *self._added]
        update: Json = {
            "action": "set-snapshot-ref",
            "ref-name": rng.choice(("main", "main", "tag", "side")),
            "type": rng.choice(("branch", "branch", "tag", "Tag", "other")),
            "snapshot-id": rng.choice(known) if known and rng.random() < 0.95 else 99,
        }
        for key in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
            if rng.random() < 0.15:
                update[key] = rng.choice((1, 5, 0, -1))
        return [update]

    def _removal(self) -> list[Json]:
        rng = self._rng
        known = [*self._snapshots, *self._added, 99]
        schemas = [one.get("schema-id", 0) for one in self._table.get("schemas") or []]
        specs = [one["spec-id"] for one in self._table.get("partition-specs") or []]
        return [
            rng.choice(
                (
                    {"action": "remove-snapshots", "snapshot-ids": rng.sample(known, min(2, len(known)))},
                    {"action": "remove-snapshots", "snapshot-ids": [rng.choice(known)]},
                    {"action": "remove-schemas", "schema-ids": [rng.choice([*schemas, 9])]},
                    {"action": "remove-partition-specs", "spec-ids": [rng.choice([*specs, 9])]},
                )
            )
        ]

    def _statistics(self) -> list[Json]:
        rng = self._rng
        snapshot_id = rng.choice([*self._snapshots, *self._added, 99])
        name = rng.choice(("statistics", "partition-statistics"))
        if rng.random() < 0.3:
            return [{"action": f"remove-{name}", "snapshot-id": snapshot_id}]
        file: Json = {
            "snapshot-id": snapshot_id,
            "statistics-path": f"<place>/{rng.randrange(9)}.puffin",
            "file-size-in-bytes": 9,
        }
        if name == "statistics":
            blob = {"type": "x", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1]}
            file |= {"file-footer-size-in-bytes": 4, "blob-metadata": [blob][: rng.randrange(2)]}
        update: Json = {"action": f"set-{name}", name: file}
        if rng.random() < 0.3 and name == "statistics":
            update["snapshot-id"] = snapshot_id
        return [update]

    def _properties(self) -> list[Json]:
        return [property_update(self._rng)]

    def _identity(self) -> list[Json]:
        rng = self._rng
        uuid = rng.choice(("<uuid>", "<uuid>", "6e0f4a2c-1b7e-4c5d-9f21-0a1b2c3d4e5f", "x"))
        return [
            rng.choice(
                (
                    {"action": "assign-uuid", "uuid": uuid},
                    {"action": "upgrade-format-version", "format-version": rng.choice((1, 2, 3, 3, 4))},
                    {"action": "set-location", "location": f"<place>/m{rng.randrange(100)}"},
                    {
                        "action": rng.choice(("nothing", "add-view-version", "Set-Location")),
                        "location": "<place>/n",
                    },
                )
            )
        ]

    def _key(self) -> list[Json]:
        key = {"key-id": self._rng.choice("kl"), "encrypted-key-metadata": "AAAA"}
        added = {"action": "add-encryption-key", "encryption-key": key}
        return [self._rng.choice((added, {"action": "remove-encryption-key", "key-id": key["key-id"]}))]
