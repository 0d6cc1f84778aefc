"""Random commits to views of Iceberg, against a simple model of the rules they follow."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.histories.settings import history_settings
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.views import changed_view, check_view, new_view
from tidemill.iceberg.model.entries import Document, NewView

UUID_TEXT: Final = "fa6506c3-7681-40c8-86dc-e36561f83385"
SIZE: Final = "version.history.num-entries"
ALLOWED: Final = "replace.drop-dialect.allowed"
LATER: Final = 1_000_000


class Refused(Exception):
    """What the model has against a commit: words that the refusal has to have."""


@dataclass(frozen=True)
class Query:
    """What a version says."""

    sql: str
    dialects: tuple[str, ...]
    catalog: str | None
    storage: str | None
    schema: int


@dataclass(frozen=True)
class Model:
    columns: tuple[str, ...]
    versions: dict[int, tuple[Query, int]]
    current: int
    log: tuple[tuple[int, int], ...]
    properties: dict[str, str] = field(default_factory=dict)
    location: str = "s3://lake/v"

    def document(self) -> Document:
        return {
            "view-uuid": UUID_TEXT,
            "format-version": 1,
            "location": self.location,
            **({"properties": self.properties} if self.properties else {}),
            "schemas": [{**schema_of(name), "schema-id": at} for at, name in enumerate(self.columns)],
            "current-version-id": self.current,
            "versions": [version_of(query, key, ms) for key, (query, ms) in sorted(self.versions.items())],
            "version-log": [{"version-id": key, "timestamp-ms": ms} for key, ms in self.log],
        }


@dataclass
class Commit:
    """One commit as the model understands it, step by step."""

    view: Model
    now: int
    last_schema: int | None = None
    last_version: int | None = None
    added: frozenset[int] = frozenset()
    entry: tuple[int, int] | None = None
    is_effective: bool = False

    def change(self, **values: Any) -> None:
        self.view = replace(self.view, **values)
        self.is_effective = True

    def apply(self, update: Document) -> None:
        match update["action"]:
            case "assign-uuid":
                require(update["uuid"].lower() == UUID_TEXT, "Cannot reassign uuid")
            case "upgrade-format-version":
                require(update["format-version"] >= 1, "Cannot downgrade v1 view to v0")
                require(update["format-version"] <= 1, "Unsupported format version: 2")
            case "add-schema":
                self.add_schema(update["schema"]["fields"][0]["name"])
            case "add-view-version":
                self.add_version(update["view-version"])
            case "set-current-view-version":
                self.set_current(update["view-version-id"])
            case _:
                self.describe(update)

    def describe(self, update: Document) -> None:
        match update["action"]:
            case "set-location":
                if update["location"] != self.view.location:
                    self.change(location=update["location"])
            case "set-properties":
                if update["updates"]:
                    self.change(properties={**self.view.properties, **update["updates"]})
            case "remove-properties":
                if update["removals"]:
                    kept = self.view.properties.items()
                    self.change(properties={k: v for k, v in kept if k not in update["removals"]})
            case other:
                raise AssertionError(other)

    def add_schema(self, column: str) -> None:
        if column not in self.view.columns:
            self.change(columns=(*self.view.columns, column))
        self.last_schema = self.view.columns.index(column)

    def add_version(self, version: Document) -> None:
        schema: int | None = version["schema-id"]
        if schema == -1:
            require(self.last_schema is not None, "no schema has been added")
            schema = self.last_schema
        assert schema is not None
        require(0 <= schema < len(self.view.columns), "unknown schema")
        query = query_of(version, schema)
        known = [key for key, (each, _) in self.view.versions.items() if each == query]
        if known:
            self.last_version = known[0]
            return
        taken = max(self.view.versions)
        given_id = version["version-id"]
        self.last_version = given_id if given_id > taken else taken + 1
        self.added |= {self.last_version}
        self.change(versions={**self.view.versions, self.last_version: (query, version["timestamp-ms"])})

    def set_current(self, wanted: int) -> None:
        if wanted == -1:
            require(self.last_version is not None, "no current version id has been set")
            assert self.last_version is not None
            wanted = self.last_version
        if wanted == self.view.current:
            return
        require(wanted in self.view.versions, "unknown version")
        self.entry = (wanted, self.view.versions[wanted][1] if wanted in self.added else self.now)
        self.change(current=wanted)

    def finish(self, before: Model) -> Model:
        if not self.is_effective:
            return before
        if self.view.properties.get(ALLOWED) != "true":
            had, has = (
                {name.lower() for name in each.versions[each.current][0].dialects}
                for each in (before, self.view)
            )
            require(had.issubset(has), "loss of view dialects")
        size = self.view.properties.get(SIZE, "10")
        require(size in ("1", "2", "3", "10"), f"{SIZE} must be")
        log = [*self.view.log, *([self.entry] if self.entry else [])]
        versions = dict(self.view.versions)
        for key in sorted(versions):
            if len(versions) > int(size) and key != self.view.current and key not in self.added:
                del versions[key]
        if len(versions) < len(self.view.versions):
            while any(key not in versions for key, _ in log):
                log.pop(0)
        return replace(self.view, versions=versions, log=tuple(log))


def require(holds: bool, words: str) -> None:
    if not holds:
        raise Refused(words)


def predicted(view: Model, updates: list[Document], now: int) -> Model | Refused:
    try:
        return after(view, updates, now)
    except Refused as refusal:
        return refusal


def after(view: Model, updates: list[Document], now: int) -> Model:
    for update in updates:
        if update["action"] == "add-view-version":
            dialects = [each["dialect"].lower() for each in update["view-version"]["representations"]]
            require(len(set(dialects)) == len(dialects), "multiple queries for dialect")
    commit = Commit(view, now)
    for update in updates:
        commit.apply(update)
    return commit.finish(view)


def schema_of(column: str) -> Document:
    return {"type": "struct", "fields": [{"id": 1, "name": column, "required": False, "type": "int"}]}


def version_of(query: Query, version_id: int, timestamp_ms: int) -> Document:
    """Without what was null."""
    return {
        "version-id": version_id,
        "timestamp-ms": timestamp_ms,
        "schema-id": query.schema,
        "summary": {},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": query.sql, "dialect": name} for name in query.dialects],
        **({"default-catalog": query.catalog} if query.catalog else {}),
        **({"storage-table": query.storage} if query.storage else {}),
    }


def query_of(version: Document, schema: int) -> Query:
    representations = version["representations"]
    dialects = tuple(each["dialect"] for each in representations)
    sql = representations[0]["sql"]
    return Query(sql, dialects, version.get("default-catalog"), version.get("storage-table"), schema)


def without_nulls(document: Document) -> Document:
    versions = [{k: v for k, v in each.items() if v is not None} for each in document["versions"]]
    return {**document, "versions": versions}


schemas = st.builds(
    lambda name, key: {"action": "add-schema", "schema": {**schema_of(name), "schema-id": key}},
    st.sampled_from("abc"),
    st.integers(-1, 4),
)
queries = st.builds(
    Query,
    st.sampled_from(["SELECT 1", "SELECT 2", "SELECT 3"]),
    st.sampled_from(
        [*[("spark",), ("SPARK", "trino"), ("spark", "trino"), ("trino",)] * 3, ("spark", "Spark")]
    ),
    st.sampled_from([None, None, "prod"]),
    st.sampled_from([None, None, "s"]),
    st.sampled_from([-1, 0, 0, 0, 1, 2]),
)
versions = st.builds(
    lambda query, key, ms, null: {
        "action": "add-view-version",
        "view-version": {**null, **version_of(query, key, ms)},
    },
    queries,
    st.integers(-2, 9),
    st.integers(0, 99),
    st.sampled_from([{}, {"default-catalog": None}]),
)
currents = st.sampled_from([-1, -1, -1, 1, 2, 3, 4, 5]).map(
    lambda key: {"action": "set-current-view-version", "view-version-id": key}
)
others = st.sampled_from(
    [
        {"action": "assign-uuid", "uuid": UUID_TEXT.upper()},
        {"action": "assign-uuid", "uuid": str(UUID(int=1))},
        {"action": "upgrade-format-version", "format-version": 0},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": "s3://lake/v"},
        {"action": "set-location", "location": "s3://lake/w"},
    ]
)
settings_of_views = st.one_of(
    st.sampled_from(["1", "1", "2", "3", "0", "x"]).map(lambda size: {SIZE: size}),
    st.sampled_from(["true", "true", "false"]).map(lambda allowed: {ALLOWED: allowed}),
    st.just({}),
).map(lambda updates: {"action": "set-properties", "updates": updates})
removals = st.lists(st.sampled_from([SIZE, ALLOWED, "no"]), max_size=2).map(
    lambda keys: {"action": "remove-properties", "removals": keys}
)
replacements = st.builds(
    lambda schema, version: [
        schema,
        {**version, "view-version": {**version["view-version"], "schema-id": -1}},
        {"action": "set-current-view-version", "view-version-id": -1},
    ],
    schemas,
    versions,
)
single = st.one_of(schemas, versions, versions, currents, currents, settings_of_views, removals, others).map(
    lambda update: [update]
)
commits = st.lists(st.one_of(replacements, single, single), max_size=3).map(
    lambda groups: [update for group in groups for update in group]
)
beginnings = st.sampled_from(
    [
        {},
        {SIZE: "1"},
        {SIZE: "1", ALLOWED: "true"},
        {SIZE: "2", ALLOWED: "true"},
        {SIZE: "3", ALLOWED: "true"},
    ]
)


@history_settings(150, 1)
@given(
    properties=beginnings,
    history=st.lists(st.tuples(commits, st.booleans()), min_size=8, max_size=16),
)
def test_views_follow_the_rules_commit_by_commit(
    properties: dict[str, str], history: list[tuple[list[Document], bool]]
) -> None:
    document, view = begun(properties)
    sent = [updates for updates, is_twice in history for _ in range(1 + is_twice)]
    for now, updates in enumerate(sent, LATER + 1):
        before = copy.deepcopy(document)
        expected = predicted(view, updates, now)
        if isinstance(expected, Refused):
            assert str(expected) in refused(document, updates, now)
            assert document == before
            continue
        changed = changed_view(document, updates, now)
        assert document == before
        assert (changed is document) is (expected is view)
        assert without_nulls(changed) == expected.document()
        check_view(changed)
        document, view = changed, expected


def begun(properties: dict[str, str]) -> tuple[Document, Model]:
    first = Query("SELECT 1", ("spark",), None, None, 0)
    new = NewView(schema_of("a"), version_of(first, 9, 9), properties=properties)
    document = new_view(new, "s3://lake/v", UUID(UUID_TEXT), LATER)
    return document, Model(("a",), {1: (first, LATER)}, 1, ((1, LATER),), properties)


def refused(document: Document, updates: list[Document], now: int) -> str:
    try:
        changed_view(document, updates, now)
    except InvalidMetadata as refusal:
        return str(refusal)
    return "not refused"


@history_settings(50, 1)
@given(history=st.lists(replacements, min_size=1, max_size=6))
def test_a_replacement_that_was_carried_out_is_not_carried_out_again(history: list[list[Document]]) -> None:
    document, _ = begun({ALLOWED: "true"})
    for updates in history:
        if "multiple queries" not in refused(document, updates, LATER):
            document = changed_view(document, updates, LATER)
            assert changed_view(document, updates, LATER + 1) is document
