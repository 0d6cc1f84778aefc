"""How many random lives of each kind of view are followed, in how many shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.histories.settings import follow_share
from tests.histories.view_machine import ViewHistory
from tests.histories.views import (
    AggregateHistory,
    ChunkerHistory,
    DistinctHistory,
    FunctionColumnHistory,
    JoinHistory,
    LeftJoinHistory,
    OrderedHistory,
    PartitionHistory,
    PositionedChunkerHistory,
    QueryHistory,
    TableFunctionHistory,
)

STEPS: Final = 10
SHARES: Final = 3
# Sixty of every kind, so many of each machine in one share; `make test-deep` follows many more.
QUERIES: Final[Mapping[type[ViewHistory], int]] = {QueryHistory: 15, FunctionColumnHistory: 5}
CHUNKERS: Final[Mapping[type[ViewHistory], int]] = {ChunkerHistory: 12, PositionedChunkerHistory: 8}
TABLE_FUNCTIONS: Final[Mapping[type[ViewHistory], int]] = {TableFunctionHistory: 6, PartitionHistory: 14}
STATEMENTS: Final[Mapping[type[ViewHistory], int]] = {
    AggregateHistory: 8,
    DistinctHistory: 3,
    OrderedHistory: 2,
    JoinHistory: 4,
    LeftJoinHistory: 4,
}
ALL: Final = {**QUERIES, **CHUNKERS, **TABLE_FUNCTIONS, **STATEMENTS}


def follow(machine: type[ViewHistory], share: int) -> None:
    follow_share(machine, share, ALL[machine], STEPS)
