"""Requirements that a commit makes of the current state of a table or view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata, RequirementFailed
from tidemill.iceberg.metadata.builders import implied_refs, with_defaults
from tidemill.iceberg.metadata.json_fields import find_long, get_int, get_object, get_string
from tidemill.iceberg.model.entries import Document

_CREATE: Final = "assert-create"
_TABLE_UUID: Final = "assert-table-uuid"
_VIEW_UUID: Final = "assert-view-uuid"
_REF: Final = "assert-ref-snapshot-id"
_IDS: Final[Mapping[str, tuple[str, str, str]]] = {
    # requirement: (its field, the table's field, label for the error message)
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id", "last assigned field id"),
    "assert-current-schema-id": ("current-schema-id", "current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": (
        "last-assigned-partition-id",
        "last-partition-id",
        "last assigned partition id",
    ),
    "assert-default-spec-id": ("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id", "default sort order"),
}


def is_create(requirements: Sequence[Document]) -> bool:
    """Whether the commit creates the table; raises InvalidMetadata if it has other requirements as well."""
    kinds = [_checked(raw, f"requirements[{index}]")[0] for index, raw in enumerate(requirements)]
    if _CREATE not in kinds:
        return False
    others = [kind for kind in kinds if kind != _CREATE]
    if others:
        raise InvalidMetadata(f"Invalid create requirements: [{', '.join(others)}]")
    return True


def check_table_requirements(base: Document | None, requirements: Sequence[Document]) -> None:
    """`base` is None if the table does not exist. Raises RequirementFailed, InvalidMetadata."""
    checked = [_checked(raw, f"requirements[{index}]") for index, raw in enumerate(requirements)]
    if any(kind == _VIEW_UUID for kind, _ in checked):
        raise InvalidMetadata("Cannot validate AssertViewUUID against a table")
    if is_create(requirements):
        if base is not None:
            raise RequirementFailed("table already exists")
        return
    if not checked:
        return
    if base is None:
        raise RequirementFailed("table does not exist")
    table = with_defaults(base)
    for kind, requirement in checked:
        _check(table, kind, requirement)


def check_view_requirements(base: Document, requirements: Sequence[Document]) -> None:
    checked = [_checked(raw, f"requirements[{index}]") for index, raw in enumerate(requirements)]
    for kind, _ in checked:
        if kind != _VIEW_UUID:
            raise InvalidMetadata(f"Cannot validate {kind} against a view")
    for _, requirement in checked:
        _check_uuid(base.get("view-uuid"), requirement["uuid"], "view UUID")


def _check(table: Document, kind: str, requirement: Document) -> None:
    if kind == _TABLE_UUID:
        _check_uuid(table.get("table-uuid"), requirement["uuid"], "UUID")
    elif kind == _REF:
        _check_ref(table, requirement["ref"], requirement.get("snapshot-id"))
    else:
        field, key, label = _IDS[kind]
        if requirement[field] != table[key]:
            raise RequirementFailed(f"{label} changed: expected id {requirement[field]} != {table[key]}")


def _check_uuid(known: str | None, wanted: str, label: str) -> None:
    if known is None or known.lower() != wanted.lower():
        raise RequirementFailed(f"{label} does not match: expected {known} != {wanted:.100}")


def _check_ref(table: Document, name: str, snapshot_id: int | None) -> None:
    """Without a snapshot id, the reference must not exist."""
    ref = implied_refs(table).get(name)
    if ref is None:
        if snapshot_id is not None:
            raise RequirementFailed(f"branch or tag {name} is missing, expected {snapshot_id}")
        return
    label = f"{ref['type']} {name}"
    if snapshot_id is None:
        raise RequirementFailed(f"{label} was created concurrently")
    if snapshot_id != ref["snapshot-id"]:
        raise RequirementFailed(f"{label} has changed: expected id {snapshot_id} != {ref['snapshot-id']}")


def _checked(raw: Any, where: str) -> tuple[str, Document]:
    """The kind of the requirement, and the requirement after a check of its fields."""
    requirement = get_object(raw, where)
    if requirement.get("type") is None:
        raise InvalidMetadata(f"Cannot parse update requirement. Missing field: {where}.type")
    kind = get_string(requirement, "type", where).lower()
    if kind not in _FIELD_CHECKS:
        raise InvalidMetadata(
            f"Unrecognized update requirement. Cannot convert to json: {where}: {kind:.100}"
        )
    _FIELD_CHECKS[kind](requirement, where)
    return kind, requirement


def _check_nothing(requirement: Document, where: str) -> None:
    """The requirement has no fields."""


def _check_uuid_field(requirement: Document, where: str) -> None:
    get_string(requirement, "uuid", where)


def _check_ref_fields(requirement: Document, where: str) -> None:
    get_string(requirement, "ref", where)
    find_long(requirement, "snapshot-id", where)


def _check_id_field(field: str) -> Callable[[Document, str], None]:
    def check(requirement: Document, where: str) -> None:
        get_int(requirement, field, where)

    return check


_FIELD_CHECKS: Final[Mapping[str, Callable[[Document, str], None]]] = {
    _CREATE: _check_nothing,
    _TABLE_UUID: _check_uuid_field,
    _VIEW_UUID: _check_uuid_field,
    _REF: _check_ref_fields,
    **{kind: _check_id_field(field) for kind, (field, _, _) in _IDS.items()},
}
