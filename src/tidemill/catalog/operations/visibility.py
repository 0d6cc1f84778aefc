"""What listings show: what the caller may read, and the namespaces on the way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, Securable, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied

Entry = TypeVar("Entry")


def can(authorizer: Authorizer, caller: Caller, permission: Permission, resource: Securable) -> bool:
    try:
        authorizer.require(caller, permission, resource)
    except PermissionDenied:
        return False
    return True


def require_visible(authorizer: Authorizer, caller: Caller, path: NamespacePath) -> None:
    """Raises PermissionDenied, whether the namespace exists or not."""
    if not authorizer.sees(caller, path):
        authorizer.require(caller, Permission.READ, path)


def visible_names(
    authorizer: Authorizer,
    caller: Caller,
    namespace: NamespacePath,
    page: Page,
    fetch: Callable[[Page], Sequence[str]],
) -> Sequence[str]:
    """The names in a namespace that the caller sees. Raises PermissionDenied."""
    require_visible(authorizer, caller, namespace)
    if can(authorizer, caller, Permission.READ, namespace):
        return fetch(page)
    return list_visible(page, fetch, str, lambda name: authorizer.sees(caller, TableIdent(namespace, name)))


def list_visible(
    page: Page,
    fetch: Callable[[Page], Sequence[Entry]],
    name_of: Callable[[Entry], str],
    is_visible: Callable[[Entry], bool],
) -> list[Entry]:
    """A full page of what is visible, however many others are in between; `after` may be any name."""
    found: list[Entry] = []
    after = page.after
    while True:
        batch = fetch(Page(after, page.limit))
        found += [entry for entry in batch if is_visible(entry)]
        if page.limit is None or len(batch) < page.limit or len(found) >= page.limit:
            return found[: page.limit]
        after = name_of(batch[-1])
