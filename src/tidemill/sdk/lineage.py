"""Where the values of a table come from, and what is made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.explain import object_name


@dataclass(frozen=True, slots=True)
class LineageFunction:
    """The function that makes one thing from another."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A table, view or column that something depends on, or the other way round, `depth` steps away.

    `through` says how: by a `projection`, `filter`, `expression`, `function`, `chunker`, `table_function` or
    `sql`. Without a column it is about the rows as a whole.
    """

    object: str
    kind: str
    depth: int
    column: str | None = None
    through: str | None = None
    function: LineageFunction | None = None

    def __str__(self) -> str:
        column = f".{self.column}" if self.column else ""
        how = [self.through.replace("_", " ")] if self.through else []
        how += [self.function.name] if self.function else []
        return f"{self.object}{column} ({self.kind}){', ' if how else ''}{' '.join(how)}"


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a table, or one of its columns, is made from, and what is made from it, nearest first."""

    object: str
    kind: str
    column: str | None
    upstream: tuple[LineageStep, ...]
    downstream: tuple[LineageStep, ...]

    def __str__(self) -> str:
        column = f".{self.column}" if self.column else ""
        return "\n".join(
            [
                f"{self.object}{column} ({self.kind})",
                *_listed("made from", self.upstream),
                *_listed("used by", self.downstream),
            ]
        )


def lineage(name: str, body: Mapping[str, Any]) -> Lineage:
    return Lineage(
        object=name,
        kind=body["kind"],
        column=body.get("column"),
        upstream=tuple(map(_step, body.get("upstream") or ())),
        downstream=tuple(map(_step, body.get("downstream") or ())),
    )


def _step(body: Mapping[str, Any]) -> LineageStep:
    function = body.get("function")
    return LineageStep(
        object=object_name(body["object"]),
        kind=body["kind"],
        depth=body.get("depth", 1),
        column=body.get("column"),
        through=body.get("through"),
        function=None if function is None else LineageFunction(function["name"], function["digest"]),
    )


def _listed(heading: str, steps: Sequence[LineageStep]) -> list[str]:
    return [f"  {heading}:", *(f"  {'  ' * step.depth}{step}" for step in steps)] if steps else []
