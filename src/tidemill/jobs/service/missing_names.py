"""What is said about names in refusals: what an object is that has the name, or which names are near.

Operations raise errors that say only what they looked for: no Lance table of this name, no such job. The HTTP
routes of the Lance protocol and the management API pass every such error through `NameHints`, the one place
that knows all names. An object of the other format is named instead of being denied, and a name that was not
found comes with those that it may have been meant to be.

Both are said only about what the caller may read. The price is paid by refused requests alone, and it is
bounded: one statement reads a few names before and after the given one, whatever the size of the namespace.
So near names are found by their beginning; in a namespace with many tables, a mistake in the first letters is
not. The beginning of a message and its error code stay as they are, because clients may go by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidemill.catalog.errors import (
    FunctionNotFound,
    NamespaceNotFound,
    StoredQueryNotFound,
    TableAlreadyExists,
    TableNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, close_names
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied, TidemillError, Unavailable
from tidemill.jobs.errors import JobNotFound, ViewNotFound
from tidemill.jobs.ports import JobStore, JobTransaction

NEIGHBORS: Final = 25
# Job ids made at the same time begin alike.
JOB_SIMILARITY: Final = 0.85
MIN_JOB_PREFIX: Final = 8
LANCE_TABLE: Final = "table"
ICEBERG: Final = "iceberg_"
# What holds a name, by its kind in the catalog.
NOUNS: Final[Mapping[str, str]] = {
    LANCE_TABLE: "a Lance table",
    "view": "a materialized view",
    "query": "a view",
    "iceberg_table": "an Iceberg table",
    "iceberg_view": "an Iceberg view",
}
EXPLAINED: Final = (
    TableNotFound,
    TableAlreadyExists,
    ViewNotFound,
    StoredQueryNotFound,
    NamespaceNotFound,
    FunctionNotFound,
    JobNotFound,
)


class NameHints:
    def __init__(self, store: JobStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def message(self, caller: Caller, error: TidemillError) -> str | None:
        """A better message for this error; None to keep its own."""
        if not isinstance(error, EXPLAINED):
            return None
        try:
            with self._store.reading() as tx:
                return self._message(tx, caller, error)
        except Unavailable:
            # The refusal stands without it.
            return None

    def near(self, caller: Caller, ident: TableIdent) -> Sequence[str]:
        """The tables and views that a missing one may have been meant to be, with their kinds."""
        if not self._may_read(caller, ident):
            return ()
        try:
            with self._store.reading() as tx:
                kinds = dict(tx.names.objects(ident, NEIGHBORS))
        except Unavailable:
            return ()
        close = [name for name in close_names(ident.name, kinds) if name != ident.name]
        return [f"{TableIdent(ident.namespace, name)} ({NOUNS[kinds[name]]})" for name in close]

    def _message(self, tx: JobTransaction, caller: Caller, error: TidemillError) -> str | None:
        match error:
            case TableNotFound():
                return self._missing_table(tx, caller, error)
            case TableAlreadyExists():
                noun = self._noun(tx, caller, error.table)
                return None if noun in (None, NOUNS[LANCE_TABLE]) else f"{error}: it is {noun}"
            case ViewNotFound() | StoredQueryNotFound():
                noun = self._noun(tx, caller, error.ident)
                return None if noun is None else f"{error}; it is {noun}"
            case NamespaceNotFound():
                return self._missing_namespace(tx, caller, error)
            case FunctionNotFound():
                return self._missing_function(tx, caller, error)
            case JobNotFound():
                return self._missing_job(tx, caller, error)
            case _:
                return None

    def _missing_table(self, tx: JobTransaction, caller: Caller, error: TableNotFound) -> str | None:
        ident = error.table
        if not self._may_read(caller, ident):
            return None
        kinds = dict(tx.names.objects(ident, NEIGHBORS))
        kind = kinds.pop(ident.name, "")
        if kind.startswith(ICEBERG):
            return f"{ident} is {NOUNS[kind]}, not a Lance table; use the Iceberg REST API of this server"
        path = NamespacePath(ident.levels)
        if path in tx.names.namespaces(path, 1) and self._may_read(caller, path):
            return f"{error}; it is a namespace"
        return _with_names(
            error, [_titled(ident.namespace, name, kinds[name]) for name in close_names(ident.name, kinds)]
        )

    def _missing_namespace(self, tx: JobTransaction, caller: Caller, error: NamespaceNotFound) -> str | None:
        path = _first_missing(tx, error.path)
        if path.is_root:
            return None
        ident = TableIdent(path.parent, path.name)
        noun = self._noun(tx, caller, ident)
        if noun is not None:
            return f"{ident} is {noun}, not a namespace"
        around = {near.name: near for near in tx.names.namespaces(path, NEIGHBORS)}
        near = [around[name] for name in close_names(path.name, around)]
        return _with_names(error, [str(found) for found in near if self._may_read(caller, found)])

    def _missing_function(self, tx: JobTransaction, caller: Caller, error: FunctionNotFound) -> str | None:
        if not self._may_read(caller, NamespacePath()):
            return None
        # The code of an SQL expression is its name, which is no name to look for.
        names = [name for name in tx.names.functions(error.name, NEIGHBORS) if " " not in name]
        return _with_names(error, close_names(error.name, names))

    def _missing_job(self, tx: JobTransaction, caller: Caller, error: JobNotFound) -> str | None:
        job_id = error.job_id
        tables = dict(tx.names.jobs(job_id, NEIGHBORS))
        is_prefix = len(job_id) >= MIN_JOB_PREFIX
        started = [found for found in tables if is_prefix and found.startswith(job_id)]
        near = started[:1] if len(started) == 1 else close_names(job_id, tables, JOB_SIMILARITY)
        return _with_names(error, [found for found in near if self._may_read(caller, tables[found])])

    def _noun(self, tx: JobTransaction, caller: Caller, ident: TableIdent) -> str | None:
        """What holds the name, if the caller may know."""
        if not self._may_read(caller, ident):
            return None
        kind = dict(tx.names.objects(ident, 1)).get(ident.name)
        return None if kind is None else NOUNS[kind]

    def _may_read(self, caller: Caller, resource: NamespacePath | TableIdent) -> bool:
        try:
            self._authorizer.require(caller, Permission.READ, resource)
        except PermissionDenied:
            return False
        return True


def _first_missing(tx: JobTransaction, path: NamespacePath) -> NamespacePath:
    """The topmost namespace on the path that does not exist; the root if all of them do by now."""
    for depth in range(1, len(path.levels) + 1):
        upper = NamespacePath(path.levels[:depth])
        if upper not in tx.names.namespaces(upper, 1):
            return upper
    return NamespacePath()


def _titled(namespace: NamespacePath, name: str, kind: str) -> str:
    title = str(TableIdent(namespace, name))
    return f"{title} ({NOUNS[kind]})" if kind.startswith(ICEBERG) else title


def _with_names(error: TidemillError, names: Iterable[str]) -> str | None:
    listed = " or ".join(names)
    return f"{error}; did you mean {listed}?" if listed else None
