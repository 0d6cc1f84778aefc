"""The permissions that changes of Iceberg tables and views need.

Operations check them before they change anything, and the protocol before it replays an earlier response.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.receipts import Need, Needs
from tidemill.iceberg.model.entries import Change, Registration


def to_write(ident: TableIdent) -> Needs:
    """To create a table or view, or to commit to it."""
    return (Need(Permission.WRITE, ident),)


def to_commit(changes: Iterable[Change]) -> Needs:
    return [need for change in changes for need in to_write(change.ident)]


def to_register(ident: TableIdent, mode: Registration) -> Needs:
    """Overwriting a table removes another one."""
    return to_remove(ident) if mode is Registration.OVERWRITE else to_write(ident)


def to_remove(ident: TableIdent) -> Needs:
    """To drop or unregister a table or view."""
    return (Need(Permission.MANAGE, ident),)


def to_rename(source: TableIdent, target: TableIdent) -> Needs:
    return (*to_remove(source), *to_write(target))
