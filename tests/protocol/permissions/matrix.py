"""The vocabulary of the permission matrix: rows, the permissions they need, and the clients that try them.

A row names a route, a request that succeeds there, and every permission that the request needs with the
namespace it needs it on. The clients follow from the rows. For each need there is one that may do
everything except that: it has every permission that does not imply the missing one on the namespace and
on the root, and is an administrator of all other namespaces. For each row there is one that has the
needed permissions and nothing else. A check that asks for less than it should, or for the permission on
another namespace, lets the first kind of client in; one that asks for more keeps the second kind out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tests.protocol.permissions.objects import Objects
from tidemill.catalog.model.callers import Permission
from tidemill.server.access.grants import IMPLIED

ROOT, HOME, AWAY, TABLE, SYSTEM = "", "home", "away", "table", "__system"
NAMESPACES: Final = (HOME, AWAY, TABLE, SYSTEM)
OWNER: Final = "owner"
NOBODY: Final = "nobody"
SECRET: Final = "secret"

Grants: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, order=True)
class Need:
    """A permission on a namespace, or on what lies in it."""

    permission: Permission
    namespace: str
    # Whether a grant on anything below is enough, as for listings, which show what the caller sees.
    is_browsing: bool = False
    # Whether the refusal must not say what it is missing on.
    is_untold: bool = False

    def __str__(self) -> str:
        if self.is_browsing:
            return f"something-below-{self.namespace or 'root'}"
        return f"{self.permission.value}-on-{self.namespace or 'root'}"


@dataclass(frozen=True)
class Request:
    """What is sent: values for the parameters of the route's path, and whatever else httpx takes."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def request(json: Any = None, *, parameters: Mapping[str, str] | None = None, **options: Any) -> Request:
    body = {} if json is None else {"json": json}
    return Request(parameters or {}, body | options)


def on(ident: str, json: Any = None, **options: Any) -> Request:
    """A request of the Lance protocol or the management API about one object."""
    return request(json, parameters={"id": ident}, **options)


Preparation: TypeAlias = Callable[[Objects], Request]


@dataclass(frozen=True)
class Row:
    """A route, what it needs and a request for it.

    `prepare` makes the objects that the request is about. `status` is what those with the permissions get;
    None is any success. `variant` tells apart several requests to one route that need different things.
    """

    route: str
    needs: tuple[Need, ...]
    prepare: Preparation
    variant: str = ""
    status: int | None = None

    def __str__(self) -> str:
        return f"{self.route} {self.variant}".strip()

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def pattern(self) -> str:
        return self.route.partition(" ")[2]


def read(namespace: str) -> Need:
    return Need(Permission.READ, namespace)


def read_untold(namespace: str) -> Need:
    return Need(Permission.READ, namespace, is_untold=True)


def browse(namespace: str) -> Need:
    return Need(Permission.READ, namespace, is_browsing=True)


def write(namespace: str) -> Need:
    return Need(Permission.WRITE, namespace)


def manage(namespace: str) -> Need:
    return Need(Permission.MANAGE, namespace)


def compute(namespace: str) -> Need:
    return Need(Permission.COMPUTE, namespace)


def function(namespace: str) -> Need:
    return Need(Permission.FUNCTION, namespace)


def admin(namespace: str) -> Need:
    return Need(Permission.ADMIN, namespace)


def client_without(need: Need) -> str:
    return f"without-{need}"


def client_with(needs: tuple[Need, ...]) -> str:
    return "-and-".join(map(str, sorted(needs)))


def key_of(client: str) -> dict[str, str]:
    return {"x-api-key": f"{client}:{SECRET}"}


def clients_of(rows: tuple[Row, ...]) -> dict[str, Any]:
    """The setting of clients for a server on which the rows are tried."""
    grants: dict[str, Grants] = {OWNER: {ROOT: ["admin"]}, NOBODY: {"elsewhere": ["admin"]}}
    for row in rows:
        grants[client_with(row.needs)] = _exactly(row.needs)
        grants.update({client_without(need): _everything_but(need) for need in row.needs})
    return {name: {"secret": SECRET, "grants": held} for name, held in grants.items()}


def trusted(clients: Mapping[str, Any]) -> dict[str, Any]:
    """The same clients on a server where each of them may do everything."""
    return {name: {"secret": SECRET} for name in clients}


def _exactly(needs: tuple[Need, ...]) -> Grants:
    held: Grants = {}
    for need in needs:
        held.setdefault(need.namespace, []).append(need.permission.value)
    return held


def _everything_but(need: Need) -> Grants:
    if need.is_browsing:
        return {}
    others = [permission.value for permission in Permission if need.permission not in IMPLIED[permission]]
    held = {name: ["admin"] for name in NAMESPACES} if need.namespace == ROOT else _elsewhere(need, others)
    return held | {need.namespace: others} if others else _without(held, need.namespace)


def _elsewhere(need: Need, others: list[str]) -> Grants:
    held: Grants = {name: ["admin"] for name in NAMESPACES if name != need.namespace}
    return held | {ROOT: others} if others else held


def _without(held: Grants, namespace: str) -> Grants:
    return {name: granted for name, granted in held.items() if name != namespace}
