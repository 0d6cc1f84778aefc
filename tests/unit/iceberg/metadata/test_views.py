"""Views as documents: how they begin, what the updates make of them, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.unit.iceberg.metadata.views import (
    NOW,
    VIEW_UUID,
    adding,
    ids_of,
    log_of,
    replacing,
    schema,
    setting,
    version,
    view,
)
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.views import changed_view, check_view, new_view
from tidemill.iceberg.model.entries import Document, NewView


def test_a_new_view_has_ids_and_times_of_our_own() -> None:
    new = NewView(schema("a"), version("SELECT 1", version_id=44, schema_id=-1))
    assert new_view(new, "s3://lake/v", VIEW_UUID, NOW) == {
        "view-uuid": str(VIEW_UUID),
        "format-version": 1,
        "location": "s3://lake/v",
        "schemas": [{**schema("a"), "schema-id": 0}],
        "current-version-id": 1,
        "versions": [version("SELECT 1", timestamp_ms=NOW)],
        "version-log": [{"timestamp-ms": NOW, "version-id": 1}],
    }


def test_properties_are_there_when_there_are_any() -> None:
    assert "properties" not in view()
    changed = changed_view(view(), [{"action": "set-properties", "updates": {"comment": "x"}}], NOW)
    assert changed["properties"] == {"comment": "x"}
    emptied = changed_view(changed, [{"action": "remove-properties", "removals": ["comment", "no"]}], NOW)
    assert "properties" not in emptied


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"representations": []}, "Cannot create view without specifying a query"),
        ({"representations": None}, "Cannot parse view-version.representations from non-array: null"),
        ({"summary": None}, "Cannot parse string map from non-object value: view-version.summary: null"),
        ({"summary": {"a": 1}}, "Cannot parse to a string value: view-version.summary.a: 1"),
        ({"default-namespace": "x"}, 'Cannot parse view-version.default-namespace from non-array: "x"'),
        (
            {"default-namespace": [1]},
            "Cannot parse string from non-text value in view-version.default-namespace: 1",
        ),
        ({"default-catalog": 1}, "Cannot parse to a string value: view-version.default-catalog: 1"),
        ({"timestamp-ms": "1"}, 'Cannot parse to a long value: view-version.timestamp-ms: "1"'),
        ({"version-id": True}, "Cannot parse to an integer value: view-version.version-id: true"),
        (
            {"representations": [{"type": "sql", "sql": "x"}]},
            "Cannot parse missing string: view-version.representations[0].dialect",
        ),
        (
            {"representations": [{"type": "plan"}]},
            "Found unsupported view representations: [plan]",
        ),
    ],
)
def test_a_version_has_to_be_whole(changes: Document, message: str) -> None:
    new = NewView(schema("a"), {**version(), **changes})
    with pytest.raises(InvalidMetadata) as refusal:
        new_view(new, "s3://lake/v", VIEW_UUID, NOW)
    assert str(refusal.value) == message


@pytest.mark.parametrize("field", ["version-id", "schema-id", "timestamp-ms", "summary", "default-namespace"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    given = version()
    del given[field]
    with pytest.raises(
        InvalidMetadata, match=f"^Cannot parse missing [a-z]+: add-view-version.view-version.{field}$"
    ):
        changed_view(view(), [adding(given)], NOW)


def test_a_version_has_one_query_for_each_dialect() -> None:
    with pytest.raises(
        InvalidMetadata, match=r"^Invalid view version: Cannot add multiple queries for dialect"
    ):
        changed_view(view(), [adding(version("SELECT 2", "spark", "SPARK"))], NOW)


def test_the_namespace_of_a_version_may_be_empty() -> None:
    changed = changed_view(view(), [adding(version("SELECT 2", default_namespace=[]))], NOW)
    assert changed["versions"][1]["default-namespace"] == []


@pytest.mark.parametrize(
    "given",
    [
        {"type": "list"},
        {"type": "struct", "fields": {}},
        {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "varchar"}]},
        {"type": "struct", "fields": [{"id": 1, "name": "a", "required": "no", "type": "int"}]},
        {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False}]},
        {"type": "struct", "fields": [], "identifier-field-ids": [{}]},
        {"type": "struct", "fields": [], "identifier-field-ids": [3]},
    ],
)
def test_what_is_no_schema_is_refused(given: Document) -> None:
    with pytest.raises(InvalidMetadata):
        changed_view(view(), [{"action": "add-schema", "schema": given}], NOW)


def test_nested_types_are_schemas_too() -> None:
    tags = {"type": "list", "element-id": 2, "element": "decimal(9, 2)", "element-required": False}
    by_day = {
        "type": "map",
        "key-id": 4,
        "key": "timestamptz",
        "value-id": 5,
        "value": {"type": "struct", "fields": []},
        "value-required": True,
    }
    fields = [
        {"id": 1, "name": "tags", "required": False, "type": tags},
        {"id": 3, "name": "by_day", "required": False, "type": by_day, "doc": "each"},
    ]
    given: Document = {"type": "struct", "fields": fields, "identifier-field-ids": []}
    changed = changed_view(view(), [{"action": "add-schema", "schema": given}], NOW)
    assert changed["schemas"][1] == {**given, "schema-id": 1}


def test_a_replacement_is_the_current_version_from_its_own_time_on() -> None:
    changed = changed_view(view(), replacing("SELECT 2", timestamp_ms=NOW + 3), NOW + 10)
    assert changed["current-version-id"] == 2
    assert changed["versions"][1] == version("SELECT 2", version_id=2, timestamp_ms=NOW + 3)
    assert log_of(changed) == [(1, NOW), (2, NOW + 3)]
    assert [each["schema-id"] for each in changed["schemas"]] == [0]


def test_the_same_commit_again_changes_nothing() -> None:
    once = changed_view(view(), replacing("SELECT 2"), NOW)
    assert changed_view(once, replacing("SELECT 2", timestamp_ms=99, version_id=9), NOW + 1) is once


def test_no_updates_change_nothing() -> None:
    base = view(comment="x")
    nothing: list[Document] = [
        {"action": "assign-uuid", "uuid": str(VIEW_UUID).upper()},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "set-location", "location": "s3://lake/v"},
        {"action": "set-properties", "updates": {}},
        {"action": "remove-properties", "removals": []},
        setting(1),
    ]
    assert changed_view(base, nothing, NOW) is base
    assert changed_view(base, [], NOW) is base


def test_properties_that_were_there_already_are_a_change() -> None:
    base = view(comment="x")
    changed = changed_view(base, [{"action": "set-properties", "updates": {"comment": "x"}}], NOW)
    assert changed == base
    assert changed is not base


def test_two_clients_that_want_the_same_id_get_different_ones() -> None:
    first = changed_view(view(), replacing("SELECT 2", version_id=2), NOW)
    second = changed_view(first, replacing("SELECT 3", version_id=2), NOW)
    assert ids_of(second) == [1, 2, 3]
    assert second["current-version-id"] == 3


def test_an_id_above_all_others_is_taken() -> None:
    changed = changed_view(view(), replacing("SELECT 2", version_id=12), NOW)
    assert ids_of(changed) == [1, 12]
    with pytest.raises(InvalidMetadata, match=r"^version-id: no ids are left"):
        changed_view(changed, replacing("a", version_id=2**31 - 1) + replacing("b"), NOW)


def test_the_id_of_a_schema_is_not_the_clients() -> None:
    given = schema("b", **{"schema-id": 40})
    changed = changed_view(view(), [{"action": "add-schema", "schema": given}], NOW)
    assert changed["schemas"][1] == {**given, "schema-id": 1}


def test_identifier_fields_make_another_schema() -> None:
    plain = schema("a")
    plain["fields"][0]["required"] = True
    updates = [
        {"action": "add-schema", "schema": {**plain, **more}} for more in ({}, {"identifier-field-ids": [1]})
    ]
    assert len(changed_view(view(), updates, NOW)["schemas"]) == 3


def test_fields_that_are_not_known_here_stay_and_tell_versions_apart() -> None:
    stored = changed_view(view(), replacing("SELECT 2", storage_table={"name": "s1"}), NOW)
    assert stored["versions"][1]["storage-table"] == {"name": "s1"}
    other = changed_view(stored, replacing("SELECT 2", storage_table={"name": "s2"}), NOW)
    assert ids_of(other) == [1, 2, 3]
    assert changed_view(other, replacing("SELECT 2", storage_table={"name": "s2"}), NOW) is other


def test_a_catalog_of_null_is_none() -> None:
    base = changed_view(view(), replacing("SELECT 2", default_catalog=None), NOW)
    assert changed_view(base, replacing("SELECT 2"), NOW) is base
    assert len(changed_view(base, replacing("SELECT 2", default_catalog="prod"), NOW)["versions"]) == 3


def test_the_order_of_queries_tells_versions_apart() -> None:
    base = changed_view(view(), replacing("SELECT 2", "spark", "trino"), NOW)
    assert len(changed_view(base, replacing("SELECT 2", "trino", "spark"), NOW)["versions"]) == 3


def test_an_old_version_that_comes_back_is_logged_now() -> None:
    base = changed_view(view(), replacing("SELECT 2", timestamp_ms=NOW + 1), NOW + 1)
    back = changed_view(base, replacing("SELECT 1"), NOW + 20)
    assert ids_of(back) == [1, 2]
    assert back["current-version-id"] == 1
    assert log_of(back) == [(1, NOW), (2, NOW + 1), (1, NOW + 20)]


def test_one_commit_is_one_entry_of_the_log() -> None:
    changed = changed_view(view(), replacing("SELECT 2") + replacing("SELECT 3"), NOW)
    assert ids_of(changed) == [1, 2, 3]
    assert log_of(changed) == [(1, NOW), (3, 5)]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"action": "assign-uuid", "uuid": str(UUID(int=1))}, "Cannot reassign uuid"),
        ({"action": "assign-uuid"}, "Cannot parse missing string: assign-uuid.uuid"),
        ({"action": "upgrade-format-version", "format-version": 0}, "Cannot downgrade v1 view to v0"),
        ({"action": "upgrade-format-version", "format-version": 2}, "Unsupported format version: 2"),
        (adding(version(schema_id=-1)), "Cannot set last added schema: no schema has been added"),
        (adding(version(schema_id=4)), "Cannot add version with unknown schema: 4"),
        (setting(-1), "Cannot set last version id: no current version id has been set"),
        (setting(3), "Cannot set current version to unknown version: 3"),
        ({"action": "set-properties"}, "Cannot parse missing map: set-properties.updates"),
        (
            {"action": "set-properties", "updates": {"a": None}},
            "Cannot parse to a string value: set-properties.updates.a: null",
        ),
        (
            {"action": "set-location", "location": None},
            "Cannot parse to a string value: set-location.location: null",
        ),
        ({}, "Cannot parse metadata update. Missing field: action"),
        ([], "Cannot parse metadata update from non-object value: []"),
    ],
)
def test_an_update_that_cannot_be_is_refused(update: Document, message: str) -> None:
    with pytest.raises(InvalidMetadata) as refusal:
        changed_view(view(), [update], NOW)
    assert str(refusal.value) == message


def test_an_action_that_is_not_known_comes_before_all_others() -> None:
    with pytest.raises(InvalidMetadata, match=r"^Cannot apply update add-spec to a view"):
        changed_view(view(), [setting(99), {"action": "add-spec"}], NOW)


def test_the_keys_of_old_clients_are_understood() -> None:
    base = changed_view(view(), [{"action": "SET-PROPERTIES", "updated": {"a": "1", "b": "2"}}], NOW)
    assert base["properties"] == {"a": "1", "b": "2"}
    both = {"action": "set-properties", "updated": {"a": "old"}, "updates": {"a": "new"}}
    assert changed_view(base, [both], NOW)["properties"]["a"] == "new"
    removed = changed_view(base, [{"action": "remove-properties", "removed": ["a"]}], NOW)
    assert removed["properties"] == {"b": "2"}


def test_a_dialect_is_not_lost_by_accident() -> None:
    base = view("spark", "Trino")
    with pytest.raises(InvalidMetadata) as refusal:
        changed_view(base, replacing("SELECT 2", "spark"), NOW)
    assert str(refusal.value) == (
        "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
        "Previous dialects: [spark, trino]\nNew dialects: [spark]"
    )
    assert changed_view(base, replacing("SELECT 2", "SPARK", "trino"), NOW)["current-version-id"] == 2


def test_a_dialect_is_lost_where_the_properties_after_the_commit_allow_it() -> None:
    allowing = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    allowed = changed_view(view("spark", "trino"), [*replacing("SELECT 2"), allowing], NOW)
    assert allowed["current-version-id"] == 2
    forbidding = {"action": "remove-properties", "removals": ["replace.drop-dialect.allowed"]}
    wide = changed_view(allowed, [setting(1)], NOW)
    with pytest.raises(InvalidMetadata, match="loss of view dialects"):
        changed_view(wide, [setting(2), forbidding], NOW)


def test_adding_a_version_without_making_it_current_loses_no_dialect() -> None:
    changed = changed_view(view("spark", "trino"), [adding(version("SELECT 2", "flink"))], NOW)
    assert changed["current-version-id"] == 1
    assert ids_of(changed) == [1, 2]


def test_old_versions_are_forgotten_with_the_log_that_leads_to_them_and_schemas_never() -> None:
    base = view(version_history_num__entries="2")
    changes = [
        {"action": "add-schema", "schema": schema("other")},
        adding(version("2", schema_id=1)),
        setting(-1),
    ]
    second = changed_view(base, changes, NOW)
    back = changed_view(second, [setting(1)], NOW + 1)
    third = changed_view(back, replacing("3", timestamp_ms=NOW + 2), NOW + 2)
    assert ids_of(third) == [2, 3]
    assert log_of(third) == [(3, NOW + 2)]
    assert len(third["schemas"]) == 2


def test_the_current_version_and_those_of_this_commit_are_kept() -> None:
    base = view(version_history_num__entries="1")
    changed = changed_view(base, [adding(version("2")), adding(version("3"))], NOW)
    assert ids_of(changed) == [1, 2, 3]
    later = changed_view(changed, [adding(version("4"))], NOW)
    assert ids_of(later) == [1, 4]
    assert log_of(later) == [(1, NOW)]


def test_ten_versions_are_kept_unless_told_otherwise() -> None:
    base = view()
    for number in range(2, 14):
        base = changed_view(base, replacing(f"SELECT {number}"), NOW)
    assert ids_of(base) == list(range(4, 14))


@pytest.mark.parametrize("value", ["0", "-1", "ten", "", "1.5", " 3", "9999999999", "1_0"])
def test_a_view_that_nobody_could_read_is_not_written(value: str) -> None:
    update = {"action": "set-properties", "updates": {"version.history.num-entries": value}}
    with pytest.raises(InvalidMetadata, match=r"^version.history.num-entries must be"):
        changed_view(view(), [update], NOW)
    with pytest.raises(InvalidMetadata, match=r"^version.history.num-entries must be"):
        view(version_history_num__entries=value)


def test_a_view_may_move() -> None:
    changed = changed_view(view(), [{"action": "set-location", "location": "s3://lake/w"}], NOW)
    assert changed == {**view(), "location": "s3://lake/w"}


def test_unknown_fields_of_the_document_stay() -> None:
    base = {**view(), "of-tomorrow": [1]}
    assert changed_view(base, replacing("SELECT 2"), NOW)["of-tomorrow"] == [1]


def test_what_we_make_can_be_registered() -> None:
    check_view(changed_view(view("spark", comment="x"), replacing("SELECT 2"), NOW))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"view-uuid": None}, "Cannot parse to a string value: view.view-uuid: null"),
        ({"view-uuid": "x"}, 'view-uuid: "x" is not a UUID'),
        ({"format-version": 2}, "Unsupported format version: 2"),
        ({"location": ""}, "Invalid location: it is empty"),
        ({"properties": None}, "Cannot parse string map from non-object value: view.properties: null"),
        ({"schemas": {}}, "Cannot parse view.schemas from non-array: {}"),
        ({"schemas": []}, "Cannot find current schema with id 0 in schemas: []"),
        ({"versions": []}, "Cannot find current version 1 in view versions: []"),
        ({"versions": [1]}, "Cannot parse view.versions[0] from a non-object: 1"),
        ({"versions": [version(), version("b")]}, "versions: more than one has the version-id 1"),
        ({"current-version-id": 2}, "Cannot find current version 2 in view versions: [1]"),
        ({"version-log": None}, "Cannot parse view.version-log from non-array: null"),
        ({"version-log": [{"version-id": 1}]}, "Cannot parse missing long: version-log[0].timestamp-ms"),
        (
            {"properties": {"version.history.num-entries": "0"}},
            "version.history.num-entries must be positive but was 0",
        ),
    ],
)
def test_what_clients_could_not_load_is_not_registered(changes: Document, message: str) -> None:
    with pytest.raises(InvalidMetadata) as refusal:
        check_view({**view(), **changes})
    assert str(refusal.value) == message


def test_what_is_null_in_a_view_is_not_kept() -> None:
    column = {"id": 1, "name": "a", "required": False, "type": "int"}
    nothing = {"type": "struct", "fields": [{**column, "doc": None, "write-default": None}]}
    new = NewView(nothing, version(default_catalog=None, storage_table=None))
    made = new_view(new, "s3://lake/v", VIEW_UUID, NOW)
    assert made["schemas"][0]["fields"] == [column]
    assert not {"default-catalog", "storage-table"} & made["versions"][0].keys()
