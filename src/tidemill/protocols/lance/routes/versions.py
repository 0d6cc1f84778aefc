"""Routes of table versions, through which clients commit."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Page, TableVersion
from tidemill.errors import InvalidInput
from tidemill.lance.versions.commit import Order
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_integer
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import branch_of, version_entry, version_json
from tidemill.protocols.lance.requests import flag_of, read_page, table_request


def create_table_version(call: Call) -> Response:
    ident, body = table_request(call)
    version = call.operations.versions.create(call.caller, ident, branch_of(call, body), version_entry(body))
    return json_response({"version": version_json(version)})


def list_table_versions(call: Call) -> Response:
    ident, body = table_request(call)
    order = Order.DESCENDING if flag_of(call, body, "descending") else Order.ASCENDING
    branch = branch_of(call, body)
    token = call.query.get("page_token")
    if token and not (token.isascii() and token.isdigit() and len(token) < 20):
        raise InvalidInput("page_token", f"{token!r:.60} is not a page token of this listing")
    if order is Order.DESCENDING and not token and query_integer(call.query, "limit") == 1:
        return _latest_version(call, ident, branch)
    versions_by_number: dict[str, TableVersion] = {}

    def fetch(page: Page) -> list[str]:
        versions = call.operations.versions.list_versions(call.caller, ident, branch, order, page)
        versions_by_number.update((str(version.version), version) for version in versions)
        return list(versions_by_number)

    numbers, next_token = read_page(call, fetch)
    versions = [version_json(versions_by_number[number]) for number in numbers]
    return json_response(without_nulls({"versions": versions, "page_token": next_token}))


def _latest_version(call: Call, ident: TableIdent, branch: str) -> Response:
    """A fast path for what every client requests before it reads or writes.

    Whether there are more versions follows from the number.
    """
    page = Page(limit=1)
    versions = call.operations.versions.list_versions(call.caller, ident, branch, Order.DESCENDING, page)
    token = str(versions[0].version) if versions and versions[0].version > 1 else None
    body_json = {"versions": [version_json(version) for version in versions], "page_token": token}
    return json_response(without_nulls(body_json))


def describe_table_version(call: Call) -> Response:
    ident, body = table_request(call)
    branch = branch_of(call, body)
    version = call.operations.versions.describe(call.caller, ident, branch, body.integer("version", 1))
    return json_response({"version": version_json(version)})


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/version/create", create_table_version, is_quick=True),
    Route("POST", "/v1/table/{id}/version/list", list_table_versions, is_quick=True),
    Route("POST", "/v1/table/{id}/version/describe", describe_table_version, is_quick=True),
)
