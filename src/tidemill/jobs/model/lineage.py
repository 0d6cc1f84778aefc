"""Lineage: what tables, views and columns are made from, and what is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Through(StrEnum):
    """How one thing comes to depend on another."""

    PROJECTION = "projection"
    FILTER = "filter"
    EXPRESSION = "expression"
    FUNCTION = "function"
    CHUNKER = "chunker"
    TABLE_FUNCTION = "table_function"
    SQL = "sql"


class ObjectKind(StrEnum):
    TABLE = "table"
    VIEW = "view"
    # The definition still names it, but it is there no more.
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Node:
    """A table or view, or one of its columns; no column means its rows as a whole."""

    table_id: UUID
    column: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionName:
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Link:
    """`made` depends on `origin`, through something and, if it is a function, through this one."""

    made: Node
    origin: Node
    through: Through
    function: FunctionName | None = None


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """A table, view or column so many steps away, and what leads to it in the last of them."""

    levels: tuple[str, ...]
    kind: ObjectKind
    column: str | None
    through: Through
    function: FunctionName | None
    depth: int


@dataclass(frozen=True, slots=True)
class ObjectLineage:
    """What a table, view or column is made from, and what depends on it; nearest first."""

    levels: tuple[str, ...]
    kind: ObjectKind
    column: str | None
    upstream: tuple[LineageEntry, ...]
    downstream: tuple[LineageEntry, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A link that was followed, where it led, and how far away from the start that is."""

    link: Link
    node: Node
    depth: int


def follow(
    start: Node, links_of: Callable[[Node], Iterable[Link]], end_of: Callable[[Link], Node]
) -> Sequence[Step]:
    """Every link that can be reached, nearest first; `end_of` says which way links are followed."""
    steps: list[Step] = []
    reached, followed = {start}, set[Link]()
    nodes, depth = [start], 0
    while nodes:
        depth += 1
        found = [link for node in nodes for link in links_of(node) if link not in followed]
        nodes = []
        for link in dict.fromkeys(found):
            followed.add(link)
            node = end_of(link)
            steps.append(Step(link, node, depth))
            if node not in reached:
                reached.add(node)
                nodes.append(node)
    return steps
