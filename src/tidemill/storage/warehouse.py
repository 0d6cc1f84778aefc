"""What the server needs from a warehouse, whether local or in an object store."""

from __future__ import annotations

from typing import Protocol

from tidemill.catalog.ports import TableFiles


class Warehouse(TableFiles, Protocol):
    def check_writable(self) -> None:
        """Raises Unavailable if the warehouse is not writable."""
