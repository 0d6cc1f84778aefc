"""The port through which operations evaluate what clients wrote, and the adapter that does it right here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import lance

from tidemill.lance.datasets import CommittingNamespace, TableNamespace
from tidemill.lance.evaluation.tables import Tables

P = ParamSpec("P")
Result = TypeVar("Result")

UNBOUNDED_RESULT: Final = 1 << 62


class Evaluator(Protocol):
    """Runs work with the arguments. Errors that work raises are raised here.

    Both raise BoundExceeded and Throttled. `caller` is the principal whose share of the processes it takes.
    """

    def read(
        self,
        caller: str,
        work: Callable[Concatenate[Tables, P], Result],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result: ...

    def write(
        self,
        caller: str,
        work: Callable[Concatenate[TableNamespace, P], Result],
        namespace: CommittingNamespace,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result:
        """The namespace commits in this process, whatever becomes of the one where the work runs.

        Raises CommitStateUnknown if a commit happened and its outcome was lost.
        """


class InProcess:
    """For processes whose loss is accounted for: those of workers."""

    def __init__(self) -> None:
        session: Any = lance.Session()  # type: ignore[attr-defined]  # missing in pylance's stubs
        self._tables = Tables(session, UNBOUNDED_RESULT)

    def start(self) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        """There is nothing to end."""

    def read(
        self,
        caller: str,
        work: Callable[Concatenate[Tables, P], Result],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result:
        return work(self._tables, *arguments, **options)

    def write(
        self,
        caller: str,
        work: Callable[Concatenate[TableNamespace, P], Result],
        namespace: CommittingNamespace,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result:
        return work(namespace, *arguments, **options)
