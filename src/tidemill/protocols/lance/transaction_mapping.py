"""Translates transactions and the actions on them."""

from __future__ import annotations

from typing import Any, Final

from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.model.transactions import (
    SetMode,
    SetProperty,
    SetStatus,
    Transaction,
    TransactionAction,
    TransactionStatus,
    UnsetMode,
    UnsetProperty,
)
from tidemill.errors import InvalidInput
from tidemill.protocols.http.fields import Fields

ACTIONS: Final = ("setStatusAction", "setPropertyAction", "unsetPropertyAction")
# The specification uses camelCase; clients of lancedb and in Python may use snake_case.
SNAKE_CASE_ACTIONS: Final = ("set_status_action", "set_property_action", "unset_property_action")


def transaction_actions(fields: Fields) -> tuple[TransactionAction, ...]:
    entries = fields.objects("actions")
    if not entries:
        raise InvalidInput("actions", "is empty; it must list at least one action")
    return tuple(_action(entry) for entry in entries)


def transaction_json(transaction: Transaction) -> dict[str, Any]:
    return {"status": transaction.status.value, "properties": dict(transaction.properties)}


def _action(entry: Fields) -> TransactionAction:
    entry.refuse_unknown({*ACTIONS, *SNAKE_CASE_ACTIONS})
    present_keys = [key for key in (*ACTIONS, *SNAKE_CASE_ACTIONS) if entry.has(key)]
    if len(present_keys) != 1:
        raise InvalidInput(entry.name_of("")[:-1], f"must have exactly one of {', '.join(ACTIONS)}")
    action = entry.nested(present_keys[0])
    assert action is not None
    match present_keys[0].replace("_", "").lower():
        case "setstatusaction":
            status = read_choice(TransactionStatus, action.required_text("status"), action.name_of("status"))
            return SetStatus(status)
        case "setpropertyaction":
            value = action.text("value")
            if value is None:
                raise InvalidInput(action.name_of("value"), "is missing; it must be a string")
            return SetProperty(action.required_text("key"), value, action.choice("mode", SetMode.OVERWRITE))
        case _:
            return UnsetProperty(action.required_text("key"), action.choice("mode", UnsetMode.SKIP))
