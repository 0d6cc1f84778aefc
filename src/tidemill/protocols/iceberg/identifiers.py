"""Names in paths and bodies of Iceberg's protocol, and what they name."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, check_name, namespace_path
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields

# No other separator is advertised: Java joins with its encoded form, pyiceberg with its decoded one.
LEVEL_SEPARATOR: Final = "\x1f"


def split_levels(raw: str) -> tuple[str, ...]:
    return tuple(raw.split(LEVEL_SEPARATOR))


def namespace_of(call: Call) -> NamespacePath:
    return namespace_path(split_levels(call.parameters["namespace"]), "namespace")


def table_of(call: Call) -> TableIdent:
    return named_in(namespace_of(call), call.parameters["table"], "table")


def view_of(call: Call) -> TableIdent:
    return named_in(namespace_of(call), call.parameters["view"], "view")


def named_in(namespace: NamespacePath, name: str, field: str = "name") -> TableIdent:
    """A name in a body is taken as it is.

    pyiceberg percent-encodes the names of views that it creates and registers. Decoding them here would give
    all other clients another view than the one they named, wherever a name has a percent sign.
    """
    check_name(name, field)
    return TableIdent(namespace, name)


def ident_from_body(body: Fields) -> TableIdent:
    """A TableIdentifier: the levels of its namespace, of which there is at least one, and its name."""
    levels = body.texts("namespace")
    if not levels:
        problem = "is missing; it has to be the list of the namespace's names, at least one"
        raise InvalidInput(body.name_of("namespace"), problem)
    namespace = namespace_path(levels, body.name_of("namespace"))
    return named_in(namespace, body.required_text("name"), body.name_of("name"))
