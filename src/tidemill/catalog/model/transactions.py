"""Transactions: commits that are done and jobs that will commit, with what callers noted on them."""

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
    """What to do when the key is there already."""

    OVERWRITE = "Overwrite"
    FAIL = "Fail"
    SKIP = "Skip"


class UnsetMode(Enum):
    """What to do when the key is not there."""

    SKIP = "Skip"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class Transaction:
    """`key` is its name for good, whatever the table is called; `properties` are what it says of itself."""

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
