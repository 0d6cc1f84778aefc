"""Which views are made from tables that are about to be removed, and what becomes of them.

A drop that would break a view is refused and names the view. The caller decides: `CASCADE` drops the views
too, and the views made from those; `FORCE` leaves them without their source. Everything is decided in the
transaction that removes the tables. The creation of a view locks its sources, so that none of them can
disappear between the decision and the end of either transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.catalog.errors import HasDependants
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import DependantPolicy
from tidemill.catalog.model.tables import Table
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer, CatalogTransaction

MAX_NAMES: Final = 5


def lock_for_removal(
    tx: CatalogTransaction,
    authorizer: Authorizer,
    caller: Caller,
    what: str,
    removed: Sequence[Table],
    policy: DependantPolicy,
) -> Sequence[Table]:
    """Locks and returns the tables to remove: those given, and with `CASCADE` all that is made from them.

    `what` names the object to drop in the refusal. Raises HasDependants, and PermissionDenied if the caller
    may not drop one of the dependants.
    """
    tx.tables.lock_all((), removed={table.ident for table in removed})
    if policy is DependantPolicy.FORCE:
        return removed
    known = {table.table_id for table in removed}
    found = tx.tables.list_readers(known)
    dependants: list[Table] = []
    while found:
        dependants += found
        known |= {table.table_id for table in found}
        tx.tables.lock_all((), removed={table.ident for table in found})
        found = tx.tables.list_readers(known)
    if not dependants:
        return removed
    visible = [table.ident for table in dependants if can(authorizer, caller, Permission.READ, table.ident)]
    hidden = len(dependants) - len(visible)
    if policy is DependantPolicy.RESTRICT or hidden:
        raise refusal(what, [str(ident) for ident in visible], hidden)
    for ident in visible:
        authorizer.require(caller, Permission.MANAGE, ident)
    return (*removed, *dependants)


def refusal(what: str, visible: Sequence[str], hidden: int, *, is_plural: bool = False) -> HasDependants:
    """Names the dependants that the caller may read, and only counts the others."""
    names = sorted(visible)
    shown = names[:MAX_NAMES]
    return HasDependants(what, shown, len(names) - len(shown), hidden, is_plural=is_plural)
