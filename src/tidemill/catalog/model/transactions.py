"""Transactions of the Lance protocol: commits and running jobs, with properties set by callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidemill.catalog.model.identifiers import TableIdent


class TransactionStatus(Enum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class SetMode(Enum):
    """What to do if the key exists."""

    OVERWRITE = "Overwrite"
    FAIL = "Fail"
    SKIP = "Skip"


class UnsetMode(Enum):
    """What to do if the key does not exist."""

    SKIP = "Skip"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class Transaction:
    """`key` identifies it even if the table is renamed. `properties` are set by the server."""

    key: str
    table: TableIdent
    status: TransactionStatus
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetStatus:
    status: TransactionStatus


@dataclass(frozen=True, slots=True)
class SetProperty:
    key: str
    value: str
    mode: SetMode = SetMode.OVERWRITE


@dataclass(frozen=True, slots=True)
class UnsetProperty:
    key: str
    mode: UnsetMode = UnsetMode.SKIP


TransactionAction: TypeAlias = SetStatus | SetProperty | UnsetProperty
