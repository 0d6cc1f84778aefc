"""What the owner of a server puts there for the requests of the permission matrix."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import uuid4

import httpx
import lance
from lancedb import udf

from tests.iceberg_requests import new_table, new_view
from tests.protocol.view_wire import LENGTH, function_text, table_view
from tests.protocol.view_wire import query as source_query
from tests.protocol.wire import TableOnWire, some_rows

COMPUTED = {
    "new_columns": [
        {"name": "length", "virtual_column": {"udf": function_text(LENGTH), "input_columns": ["text"]}}
    ]
}


def double(x: int) -> int:
    return 2 * x


REGISTRATION: dict[str, Any] = {
    key: value
    for key, value in udf(name="double")(double).registration_request._known_dict().items()
    if key != "name"
}


def new_name() -> str:
    return f"x{uuid4().hex[:12]}"


class Objects:
    """Makes objects as the owner. Those that requests only read are made once."""

    def __init__(self, owner: httpx.Client, object_store: str = "") -> None:
        self._owner = owner
        self.object_store = object_store
        for namespace in ("home", "away", "table"):
            self.ask("POST", f"/v1/namespace/{namespace}/create", {})

    def ask(self, method: str, path: str, json: Any = None, **options: Any) -> Any:
        body = {} if json is None else {"json": json}
        answer = self._owner.request(method, path, **body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def namespace(self, below: str, delimiter: str = "$") -> str:
        name = new_name()
        self.ask("POST", f"/v1/namespace/{below}${name}/create", {})
        return f"{below}{delimiter}{name}"

    def table(self, namespace: str) -> TableOnWire:
        made = TableOnWire(self._owner, namespace, new_name())
        made.create(some_rows())
        return made

    def ident(self, namespace: str) -> str:
        """A new table of three rows, by its id in a path."""
        return ident_of(self.table(namespace))

    def two_versions(self, namespace: str) -> TableOnWire:
        made = self.table(namespace)
        made.insert(some_rows(10))
        return made

    @cached_property
    def still(self) -> str:
        """A table at home that no request changes, with a tag and a branch."""
        made = self.table("home")
        made.asked("tags/create", {"tag": "first", "version": 1})
        made.asked("branches/create", {"name": "side"})
        return ident_of(made)

    @cached_property
    def still_away(self) -> TableOnWire:
        return self.table("away")

    @cached_property
    def indexed(self) -> str:
        made = self.table("home")
        lance.dataset(str(made.directory)).create_scalar_index("id", "BTREE", name="by_id")
        return ident_of(made)

    def computed(self) -> str:
        """A new table with a column that a function fills."""
        made = self.table("home")
        made.asked("add_columns", COMPUTED)
        return ident_of(made)

    @cached_property
    def still_computed(self) -> str:
        return self.computed()

    def job(self) -> str:
        """A job that no worker takes."""
        path = f"/api/v1/tables/{self.still_computed}/preview"
        return str(self.ask("POST", path, {"column": "length"})["job_id"])

    @cached_property
    def still_job(self) -> str:
        return self.job()

    def materialized_view(self) -> str:
        """A view at home of a table away from it."""
        ident = f"home${new_name()}"
        source = ".".join(self.still_away.levels)
        body = {"query": f"SELECT id FROM {source}", "with_no_data": True}
        self.ask("POST", f"/v1/materialized_view/{ident}/create", body)
        return ident

    @cached_property
    def still_view(self) -> str:
        return self.materialized_view()

    @cached_property
    def function_view(self) -> str:
        """A view that a function makes."""
        ident = f"home${new_name()}"
        body = table_view(source_query(*self.still_away.levels))
        self.ask("POST", f"/v1/materialized_view/{ident}/create", body)
        return ident

    def stored_query(self) -> str:
        ident = f"home${new_name()}"
        body = {"query": f"SELECT id FROM {'.'.join(self.still_away.levels)}"}
        self.ask("POST", f"/v1/view/{ident}/create", body)
        return ident

    @cached_property
    def still_query(self) -> str:
        return self.stored_query()

    def function(self) -> str:
        ident = f"home${new_name()}"
        self.ask("POST", f"/v1/function/{ident}/create", REGISTRATION)
        return ident

    @cached_property
    def still_function(self) -> dict[str, Any]:
        """A registered function as it is described."""
        found = self.ask("POST", f"/v1/function/{self.function()}/describe", {"version": "1"})
        assert isinstance(found, dict)
        return found

    @cached_property
    def registration_job(self) -> str:
        return "function-" + str(self.still_function["object_id"]).removeprefix("sha256:")

    def manifest(self) -> str:
        name = new_name()
        self.ask("PUT", f"/api/v1/manifests/{name}", {"pip": ["numpy"]})
        return name

    @cached_property
    def still_manifest(self) -> str:
        return self.manifest()

    def client(self) -> str:
        name = new_name()
        self.ask("POST", "/api/v1/auth/clients", {"client": name})
        return name

    def role(self) -> str:
        name = new_name()
        self.ask("POST", "/api/v1/auth/roles", {"role": name})
        return name

    def secret(self) -> str:
        ident = f"home${new_name()}"
        self.ask("POST", f"/v1/secret/{ident}/create", {"value": "hidden"})
        return ident

    def iceberg_table(self, namespace: str) -> str:
        name = new_name()
        self.ask("POST", f"/iceberg/v1/namespaces/{namespace}/tables", new_table(name))
        return name

    @cached_property
    def still_iceberg_table(self) -> str:
        return self.iceberg_table("home")

    def iceberg_view(self, namespace: str) -> str:
        name = new_name()
        self.ask("POST", f"/iceberg/v1/namespaces/{namespace}/views", new_view(name))
        return name

    @cached_property
    def still_iceberg_view(self) -> str:
        return self.iceberg_view("home")

    def left_metadata(self, kind: str) -> str:
        """Where the metadata of an Iceberg table or view lies that has no name any more."""
        name = self.iceberg_table("home") if kind == "tables" else self.iceberg_view("home")
        path = f"/iceberg/v1/namespaces/home/{kind}/{name}"
        location = self.ask("GET", path)["metadata-location"]
        self.ask("DELETE", path)
        return str(location)

    def left_lance_table(self) -> str:
        """Where a Lance table lies that has no name any more."""
        made = self.table("home")
        location = made.directory
        made.asked("deregister")
        return location.name


def ident_of(table: TableOnWire) -> str:
    return f"{table.namespace}${table.name}"
