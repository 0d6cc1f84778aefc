"""Reads namespace, table and view identifiers from the paths and bodies of requests."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, check_name, namespace_path
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, read_object

# The only separator advertised: Java sends it percent-encoded, pyiceberg decoded.
LEVEL_SEPARATOR: Final = "\x1f"


def split_levels(raw: str) -> tuple[str, ...]:
    return tuple(raw.split(LEVEL_SEPARATOR))


def namespace_of(call: Call) -> NamespacePath:
    return namespace_path(split_levels(call.parameters["namespace"]), "namespace")


def table_of(call: Call) -> TableIdent:
    return ident_in(namespace_of(call), call.parameters["table"], "table")


def view_of(call: Call) -> TableIdent:
    return ident_in(namespace_of(call), call.parameters["view"], "view")


def new_namespace_of(call: Call) -> NamespacePath:
    """The namespace that the body of a request names."""
    levels = read_object(call.body).texts("namespace")
    if not levels:
        raise InvalidInput("namespace", "is missing; it must be a list with at least one name")
    return namespace_path(levels, "namespace")


def new_ident_of(call: Call) -> TableIdent:
    """The table or view that a request creates: its namespace is in the path, its name in the body."""
    body = read_object(call.body)
    return ident_in(namespace_of(call), body.required_text("name"))


def ident_in(namespace: NamespacePath, name: str, field: str = "name") -> TableIdent:
    """Takes the name literally, without decoding it.

    pyiceberg percent-encodes the names of views that it creates and registers. Decoding them here would break
    names with a percent sign for all other clients.
    """
    check_name(name, field)
    return TableIdent(namespace, name)


def ident_from_body(body: Fields) -> TableIdent:
    """Reads a TableIdentifier: a namespace of at least one level, and a name."""
    levels = body.texts("namespace")
    if not levels:
        problem = "is missing; it must be a list with at least one name"
        raise InvalidInput(body.name_of("namespace"), problem)
    namespace = namespace_path(levels, body.name_of("namespace"))
    return ident_in(namespace, body.required_text("name"), body.name_of("name"))
