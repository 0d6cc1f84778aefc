"""Translates paths and bodies of requests into core values; accepts unknown and some missing fields."""

from __future__ import annotations

from tidemill.catalog.model.identifiers import (
    LEVEL_SEPARATOR,
    NamespacePath,
    TableIdent,
    check_name,
    namespace_path,
)
from tidemill.errors import InvalidInput
from tidemill.iceberg.model.entries import Change, Document, NewTable, NewView, Registration
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, read_object


def split_levels(call: Call, raw: str) -> tuple[str, ...]:
    """Splits at 0x1F, which every client knows, or else at the separator of the settings."""
    separator = LEVEL_SEPARATOR if LEVEL_SEPARATOR in raw else call.operations.namespace_separator
    return tuple(raw.split(separator))


def namespace_of(call: Call) -> NamespacePath:
    return namespace_path(split_levels(call, call.parameters["namespace"]), "namespace")


def table_of(call: Call) -> TableIdent:
    return ident_in(namespace_of(call), call.parameters["table"], "table")


def view_of(call: Call) -> TableIdent:
    return ident_in(namespace_of(call), call.parameters["view"], "view")


def new_namespace_of(call: Call) -> NamespacePath:
    """The namespace that the body of a request names."""
    levels = read_object(call.body).texts("namespace")
    if not levels:
        raise InvalidInput("namespace", "is missing; it must be a list with at least one name")
    separator = call.operations.namespace_separator
    if any(separator in level for level in levels):
        raise InvalidInput("namespace", f"{levels[-1]!r:.200} contains the namespace separator {separator!r}")
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


def new_table(body: Fields) -> NewTable:
    return NewTable(
        schema=_required_document(body, "schema"),
        location=body.text("location") or None,
        partition_spec=_document(body, "partition-spec"),
        write_order=_document(body, "write-order"),
        properties=body.texts_by_name("properties") or {},
    )


def new_view(body: Fields) -> NewView:
    """Java omits `properties` if there are none, although the specification requires it."""
    return NewView(
        schema=_required_document(body, "schema"),
        version=_required_document(body, "view-version"),
        location=body.text("location") or None,
        properties=body.texts_by_name("properties") or {},
    )


def change_of(ident: TableIdent, body: Fields) -> Change:
    """The commit to the table or view in the path; the body may repeat the identifier."""
    identifier = body.nested("identifier")
    if identifier is not None and ident_from_body(identifier) != ident:
        raise InvalidInput(
            "identifier", f"{ident_from_body(identifier)} in the body does not match {ident} in the path"
        )
    return _change(ident, body)


def changes_of(call: Call) -> tuple[Change, ...]:
    """The commits of a multi-table transaction."""
    body = read_object(call.body)
    if body.raw("table-changes") is None:
        raise InvalidInput("table-changes", "is missing; it must be a list of table commits")
    return tuple(_named_change(entry) for entry in body.objects("table-changes"))


def registration_of(call: Call) -> tuple[TableIdent, Registration]:
    ident, is_overwrite = new_ident_of(call), read_object(call.body).flag("overwrite")
    return ident, Registration.OVERWRITE if is_overwrite else Registration.REFUSE


def source_and_target(call: Call) -> tuple[TableIdent, TableIdent]:
    """The old and the new name of a table or view."""
    body = read_object(call.body)
    return _required_ident(body, "source"), _required_ident(body, "destination")


def _named_change(entry: Fields) -> Change:
    return _change(_required_ident(entry, "identifier"), entry)


def _change(ident: TableIdent, body: Fields) -> Change:
    if body.raw("updates") is None:
        raise InvalidInput(body.name_of("updates"), "is missing; it must be a list, which may be empty")
    return Change(ident, _documents(body, "requirements"), _documents(body, "updates"))


def _required_ident(body: Fields, key: str) -> TableIdent:
    identifier = body.nested(key)
    if identifier is None:
        raise InvalidInput(body.name_of(key), "is missing; it must have a namespace and a name")
    return ident_from_body(identifier)


def _required_document(body: Fields, key: str) -> Document:
    document = _document(body, key)
    if document is None:
        raise InvalidInput(body.name_of(key), "is missing; it must be a JSON object")
    return document


def _document(body: Fields, key: str) -> Document | None:
    nested = body.nested(key)
    return None if nested is None else dict(nested.values)


def _documents(body: Fields, key: str) -> tuple[Document, ...]:
    return tuple(dict(entry.values) for entry in body.objects(key))
