"""A table by its name, and the requests about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.sdk.http import ServerClient
from tidemill.sdk.names import dotted, url_id


class TableHandle:
    """The name of a table at a server; nothing is asked until something has to be known."""

    def __init__(self, client: ServerClient, levels: tuple[str, ...]) -> None:
        self._client = client
        self.levels = levels

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._client.url}>"

    @property
    def name(self) -> str:
        """The name with the namespaces that hold it."""
        return dotted(self.levels)

    def _post(self, kind: str, action: str, body: Mapping[str, Any]) -> Any:
        path, params = self._client.object_path(kind, self.levels, action)
        return self._client.post(path, dict(body), params=params)

    def _management_path(self, action: str) -> tuple[str, dict[str, str]]:
        """The path of an action of the management API, and its query."""
        encoded, params = url_id(self.levels)
        return f"/api/v1/tables/{encoded}/{action}", params
