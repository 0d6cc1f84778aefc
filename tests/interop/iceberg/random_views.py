"""Random views, and updates made to fit the state that a view has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.interop.iceberg.random_shapes import Json, property_update, schema


class ViewUpdates:
    """For a view in the state that its metadata tells."""

    def __init__(self, rng: random.Random, metadata: Mapping[str, Any]) -> None:
        self._rng = rng
        self._view = metadata

    def description(self) -> Json:
        rng = self._rng
        body: Json = {"schema": schema(rng), "view-version": {**self._version(), "schema-id": 0}}
        if rng.random() < 0.8:
            body["properties"] = view_properties(rng)
        if rng.random() < 0.15:
            body["location"] = f"<place>/v{rng.randrange(100)}"
        return body

    def requirements(self) -> list[Json]:
        rng = self._rng
        right = {"type": "assert-view-uuid", "uuid": "<uuid>"}
        odd = rng.choice(
            (
                {"type": "assert-view-uuid", "uuid": "other"},
                {"type": "assert-table-uuid", "uuid": "<uuid>"},
                {"type": "assert-create"},
                {"type": "nothing"},
            )
        )
        return rng.choice(([], [right], [right], [right], [right], [right, odd]))

    def some(self) -> list[Json]:
        updates: list[Json] = []
        for _ in range(self._rng.choice((0, 1, 1, 1, 2, 3))):
            updates += self._one()
        return updates

    def _one(self) -> list[Json]:
        rng = self._rng
        match rng.randrange(10):
            case 0:
                return [property_update(rng, view_properties(rng))]
            case 1:
                uuid = rng.choice(("<uuid>", "<uuid>", "6e0f4a2c-1b7e-4c5d-9f21-0a1b2c3d4e5f"))
                return [
                    rng.choice(
                        (
                            {"action": "assign-uuid", "uuid": uuid},
                            {"action": "upgrade-format-version", "format-version": rng.choice((0, 1, 1, 2))},
                            {"action": "set-location", "location": f"<place>/w{rng.randrange(100)}"},
                            {
                                "action": rng.choice(("nothing", "add-spec", "set-current-schema")),
                                "schema-id": 0,
                            },
                        )
                    )
                ]
            case 2 | 3:
                return [
                    {"action": "set-current-view-version", "view-version-id": rng.choice((-1, 1, 2, 3, 4, 9))}
                ]
            case _:
                known = self._view.get("versions") or []
                version = dict(rng.choice(known)) if known and rng.random() < 0.2 else self._version()
                updates: list[Json] = []
                if rng.random() < 0.4:
                    schemas = self._view.get("schemas") or []
                    added = rng.choice(schemas) if schemas and rng.random() < 0.4 else schema(rng)
                    updates.append({"action": "add-schema", "schema": added, "last-column-id": 9})
                updates.append({"action": "add-view-version", "view-version": version})
                if rng.random() < 0.85:
                    updates.append({"action": "set-current-view-version", "view-version-id": -1})
                return updates

    def _version(self) -> Json:
        rng = self._rng
        dialects = rng.choice(
            (["spark"], ["spark"], ["trino"], ["spark", "trino"], ["Spark"], ["spark", "SPARK"])
        )
        version: Json = {
            "version-id": rng.choice((1, 2, 3, 7, len(self._view.get("versions") or []) + 1)),
            "schema-id": rng.choice((-1, 0, 0, 0, 1, 5)),
            "timestamp-ms": 1_700_000_000_000 + rng.randrange(1000),
            "summary": rng.choice(({}, {"engine": "spark"})),
            "representations": [
                {
                    "type": rng.choice(("sql", "sql", "sql", "SQL")),
                    "sql": f"SELECT {rng.randrange(6)}",
                    "dialect": one,
                }
                for one in dialects
            ],
            "default-namespace": rng.choice(([], ["a"], ["a", "c"])),
        }
        if rng.random() < 0.3:
            version["default-catalog"] = rng.choice(("c", None))
        if rng.random() < 0.05:
            version["representations"] = []
        return version


def view_properties(rng: random.Random) -> dict[str, str]:
    found = {key: rng.choice(("1", "2")) for key in rng.sample(("p", "q"), rng.randrange(2))}
    if rng.random() < 0.3:
        found["version.history.num-entries"] = rng.choice(("1", "2", "3", "0", "x"))
    if rng.random() < 0.4:
        found["replace.drop-dialect.allowed"] = rng.choice(("true", "true", "false"))
    return found
