"""What specifications and the newest published Lance Namespace client have that this server may not have yet.

Three things move: the documents in `shared/spec`, the tables derived from them, and the client that is
generated from a newer document than ours. `make test` compares with the client that is installed here;
`make clients` with the newest one that is published. Whatever is new fails until it is served and listed in
`SERVED_AHEAD`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.clients.client import CACHE, python_environment, run_installer
from tests.specification.documents import DOCUMENTS, FOLDER
from tests.specification.notation import Schema
from tests.specification.tables import LANCE, Operation
from tidemill.errors import MethodNotAllowed, RouteNotFound
from tidemill.protocols.http.app import Service
from tidemill.protocols.http.routing import Router

PACKAGE: Final = "lance-namespace-urllib3-client"
# The generator gives names to what the document leaves without one.
UNNAMED: Final = frozenset(
    {"QueryTableRequestColumns", "QueryTableRequestFullTextQuery", "QueryTableRequestVector"}
)
# Fields of newer documents that this server reads, by model.
SERVED_AHEAD: Final[Mapping[str, frozenset[str]]] = {
    "AnalyzeTableQueryPlanRequest": frozenset({"minimum_nprobes", "maximum_nprobes"}),
    "QueryTableRequest": frozenset({"minimum_nprobes", "maximum_nprobes"}),
}


def new_in(client: Mapping[str, Any]) -> list[str]:
    """What a client has that neither the table of our document nor `SERVED_AHEAD` knows."""
    operations = [f"operation {name}" for name in client["operations"] if name not in LANCE.operations]
    return operations + [
        what for name, fields in client["models"].items() for what in _new_in_model(name, fields)
    ]


def _new_in_model(name: str, fields: list[str]) -> Iterator[str]:
    if name not in LANCE.schemas:
        if name not in UNNAMED:
            yield f"model {name}"
        return
    known = _fields_of(LANCE.schemas[name]) | SERVED_AHEAD.get(name, frozenset())
    yield from (f"field {name}.{one}" for one in fields if one not in known)


def _fields_of(schema: Schema) -> set[str]:
    if "$ref" in schema:
        return _fields_of(LANCE.schemas[schema["$ref"].rpartition("/")[2]])
    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
    return set(schema.get("properties", ())).union(*map(_fields_of, parts))


def unserved(operations: Mapping[str, Operation], service: Service) -> list[str]:
    """Operations of a table that no route of the service answers."""
    router = Router(service.routes)
    return [name for name, one in operations.items() if not _is_served(router, service.prefix, one)]


def _is_served(router: Router, prefix: tuple[str, ...], operation: Operation) -> bool:
    try:
        router.match(operation.method, (*prefix, *filter(None, operation.path.split("/"))))
    except (RouteNotFound, MethodNotAllowed):
        return False
    return True


def unread_documents() -> list[str]:
    """Documents in the folder of specifications that no table is derived from, such as newer versions."""
    return sorted(path.name for path in FOLDER.glob("*.yaml") if path.name not in DOCUMENTS.values())


def newest_surface() -> Mapping[str, Any]:
    """Of the newest client that is published; raises ClientMissing."""
    folder = CACHE / "newest-lance-namespace"
    python = python_environment(folder, PACKAGE)
    upgrade = ("-m", "uv", "pip", "install", "--quiet", "--upgrade", "--python", str(python), PACKAGE)
    run_installer(sys.executable, *upgrade)
    program = Path(__file__).with_name("client_surface.py")
    told = subprocess.run([str(python), str(program)], check=True, capture_output=True, text=True)
    found: Mapping[str, Any] = json.loads(told.stdout)
    return found
