"""The ports of the catalog with a step before everything that reaches the database or storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.interleavings.scheduler import Action, Killed, Run, Step
from tidemill.errors import CommitStateUnknown, Unavailable

DATABASE: Final = "database"
REFERENCES: Final = "references"

Footprint = tuple[Sequence[str], Sequence[str]]


class Stage:
    """Where an actor acts: its run, and its name there. Outside of a run nothing is a step.

    Every run has a table of its own; `aliases` of what is random about it make steps of two runs comparable.
    """

    def __init__(self) -> None:
        self._run: Run | None = None
        self._actor = ""
        self._aliases: Mapping[str, str] = {}

    @contextmanager
    def entered(self, run: Run, actor: str, aliases: Mapping[str, str]) -> Iterator[None]:
        self._run, self._actor, self._aliases = run, actor, aliases
        try:
            yield
        finally:
            self._run = None

    def step(self, name: str, reads: Sequence[str], writes: Sequence[str]) -> Action:
        if self._run is None:
            return Action.DO
        step = Step(
            self._plain(name), frozenset(map(self._plain, reads)), frozenset(map(self._plain, writes))
        )
        return self._run.step(self._actor, step)

    def _plain(self, text: str) -> str:
        for random, alias in self._aliases.items():
            text = text.replace(random, alias)
        return text

    def check_alive(self) -> None:
        if self._run is not None and self._run.is_dead(self._actor):
            raise Killed


def _reads(*places: int) -> Callable[[Sequence[str]], Footprint]:
    return lambda keys: ([keys[place] for place in places], [])


def _writes(*places: int) -> Callable[[Sequence[str]], Footprint]:
    return lambda keys: ([], [part for place in places for part in _written(keys[place])])


def _written(key: str) -> list[str]:
    return [key, f"{key.rpartition('/')[0]}/*"]


def _copies(keys: Sequence[str]) -> Footprint:
    return [keys[0]], _written(keys[1])


FILE_STEPS: Final[Mapping[str, Callable[[Sequence[str]], Footprint]]] = {
    "size_of": _reads(0),
    "read": _reads(0),
    "list_names": lambda keys: ([f"{keys[0]}/*"], []),
    "write": _writes(0),
    "copy_if_absent": _copies,
    "remove": _writes(0),
}
"""What each method of TableFiles that reaches storage reads and writes, by its arguments."""


class SteppedFiles:
    """Table files of one server; what removes a whole table conflicts with every use of it."""

    def __init__(self, inner: Any, stage: Stage) -> None:
        self._inner = inner
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "remove_table":
            return self._removing(method)
        if name not in FILE_STEPS:
            return method

        def stepped(*arguments: Any, **options: Any) -> Any:
            reads, writes = FILE_STEPS[name](arguments)
            tables = sorted({f"table {_table_of(key)}" for key in (*reads, *writes)})
            said = f"{name} {' '.join(_short(key) for key in arguments if isinstance(key, str))}"
            action = self._stage.step(said, [*reads, *tables], writes)
            result = method(*arguments, **options)
            if action is Action.LOSE_ANSWER:
                raise Unavailable(f"the answer to {said} was lost")
            return result

        return stepped

    def _removing(self, method: Callable[[str], None]) -> Callable[[str], None]:
        def stepped(location: str) -> None:
            table = _table_of(self._inner.key_of(location))
            self._stage.step("remove the table's files", [], [f"table {table}"])
            method(location)

        return stepped


def _table_of(key: str) -> str:
    return key.partition(".lance")[0]


def _short(key: str) -> str:
    """The table and the part of a key below it."""
    directory, _, below = key.rpartition(".lance/")
    return f"{directory.rpartition('/')[2]}:{below}" if below else key.rpartition("/")[2]


class SteppedRefs:
    """Tags and branches of one server. pylance writes the reference of a new branch when it has a version."""

    def __init__(self, inner: Any, stage: Stage) -> None:
        self._inner = inner
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "create_branch":
            return method

        def stepped(table: Any, *arguments: Any) -> Any:
            is_read = name.startswith("list_")
            files = f"table {_table_of(table.location.lstrip('/'))}"
            self._stage.step(
                name.replace("_", " "),
                [REFERENCES, files] if is_read else [],
                [] if is_read else [REFERENCES, files],
            )
            return method(table, *arguments)

        return stepped


class SteppedStore:
    """A transaction is one step, taken when it begins: nobody else moves until it is over.

    Where code inside a transaction reaches storage, that is a step as well, and others move meanwhile.
    """

    def __init__(self, inner: Any, stage: Stage) -> None:
        self._inner = inner
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        action = self._stage.step("transaction", [], [DATABASE])
        with self._inner.transaction() as tx:
            yield tx
            self._stage.check_alive()
        if action is Action.LOSE_ANSWER:
            raise CommitStateUnknown("the answer to the commit was lost")

    @contextmanager
    def reading(self) -> Iterator[Any]:
        self._stage.step("read rows", [DATABASE], [])
        with self._inner.reading() as tx:
            yield tx
