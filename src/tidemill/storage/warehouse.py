"""What the server asks of the place where tables lie, whatever it is."""

from __future__ import annotations

from typing import Protocol

from tidemill.catalog.ports import TableFiles


class Warehouse(TableFiles, Protocol):
    def check_writable(self) -> None:
        """Raises Unavailable when the warehouse cannot be written to."""
