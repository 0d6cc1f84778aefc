"""Reading the audit: administrators see what concerns their namespaces, everybody sees their own events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from tidemill.catalog.model.audit import AuditEvent, AuditFilter
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer

ROOT = NamespacePath()


class AuditLog(Protocol):
    def list_page(self, page: Page, wanted: AuditFilter) -> Sequence[AuditEvent]:
        """Newest first."""


class AuditTransaction(Protocol):
    @property
    def audit(self) -> AuditLog: ...


class AuditReadStore(Protocol):
    def reading(self) -> AbstractContextManager[AuditTransaction]: ...


class AuditOperations:
    def __init__(self, store: AuditReadStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def list_events(self, caller: Caller, wanted: AuditFilter, page: Page) -> Sequence[AuditEvent]:
        """What the caller may see of the events, newest first.

        Administrators of a namespace name it, or an object in it, with `under`. Of events that concern other
        objects as well, they do not see those.
        """
        is_owner = can(self._authorizer, caller, Permission.ADMIN, ROOT)
        is_local = wanted.under is not None and can(self._authorizer, caller, Permission.ADMIN, wanted.under)
        if not is_owner and not is_local:
            wanted = replace(wanted, done_by=caller.principal)
        with self._store.reading() as tx:
            events = tx.audit.list_page(page, wanted)
        if is_owner or not is_local or wanted.under is None:
            return events
        under = wanted.under
        return [
            event
            if event.principal == caller.principal and not event.is_claimed
            else replace(event, objects=tuple(found for found in event.objects if found.is_under(under)))
            for event in events
        ]
