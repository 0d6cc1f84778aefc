"""Routes of tags and branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page
from tidemill.lance.model.tables import Branch, Tag
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.requests import is_lancedb, read_page, table_request

Ref = TypeVar("Ref", Tag, Branch)


def list_table_tags(call: Call) -> Response:
    ident, _ = table_request(call)
    tags, token = _page(call, call.operations.refs.list_tags(call.caller, ident))
    if is_lancedb(call.headers):
        return json_response({name: _lancedb_tag(tag) for name, tag in tags.items()})
    body_json = {"tags": {name: _tag(tag) for name, tag in tags.items()}, "page_token": token}
    return json_response(without_nulls(body_json))


def get_table_tag_version(call: Call) -> Response:
    ident, body = table_request(call)
    tag = call.operations.refs.get_tag(call.caller, ident, body.required_text("tag"))
    return json_response(without_nulls({"version": tag.version, "branch": _protocol_branch(tag.branch)}))


def create_table_tag(call: Call) -> Response:
    call.operations.refs.create_tag(call.caller, *_tag_request(call))
    return json_response({})


def update_table_tag(call: Call) -> Response:
    call.operations.refs.update_tag(call.caller, *_tag_request(call))
    return json_response({})


def delete_table_tag(call: Call) -> Response:
    ident, body = table_request(call)
    call.operations.refs.delete_tag(call.caller, ident, body.required_text("tag"))
    return json_response({})


def list_table_branches(call: Call) -> Response:
    ident, _ = table_request(call)
    branches, token = _page(call, call.operations.refs.list_branches(call.caller, ident))
    body_json = {
        "branches": {name: _branch(branch) for name, branch in branches.items()},
        "page_token": token,
    }
    return json_response(without_nulls(body_json))


def create_table_branch(call: Call) -> Response:
    ident, body = table_request(call)
    name, parent = body.required_text("name"), body.text("from_branch") or MAIN_BRANCH
    version = body.integer("from_version", 0)
    call.operations.refs.create_branch(call.caller, ident, name, parent, version)
    return json_response({})


def delete_table_branch(call: Call) -> Response:
    ident, body = table_request(call)
    call.operations.refs.delete_branch(call.caller, ident, body.required_text("name"))
    return json_response({})


def _tag_request(call: Call) -> tuple[TableIdent, str, str, int]:
    """The table, the tag, and the branch and version to tag."""
    ident, body = table_request(call)
    tag, version = body.required_text("tag"), body.required_integer("version", 0)
    return ident, tag, body.text("branch") or MAIN_BRANCH, version


def _page(call: Call, refs: Mapping[str, Ref]) -> tuple[dict[str, Ref], str | None]:
    def fetch(page: Page) -> list[str]:
        names = sorted(name for name in refs if page.after is None or name > page.after)
        return names if page.limit is None else names[: page.limit]

    names, token = read_page(call, fetch)
    return {name: refs[name] for name in names}, token


def _tag(tag: Tag) -> dict[str, Any]:
    return without_nulls(
        {"version": tag.version, "manifestSize": tag.manifest_size, "branch": _protocol_branch(tag.branch)}
    )


def _lancedb_tag(tag: Tag) -> dict[str, Any]:
    """lancedb's clients up to 0.39 read the size under one name, later ones under the other."""
    return _tag(tag) | {"manifest_size": tag.manifest_size}


def _branch(branch: Branch) -> dict[str, Any]:
    return without_nulls(
        {
            "parentBranch": _protocol_branch(branch.parent_branch),
            "parentVersion": branch.parent_version,
            "createAt": int(branch.created_at.timestamp()),
            "manifestSize": branch.manifest_size,
            "metadata": dict(branch.metadata) or None,
        }
    )


def _protocol_branch(branch: str) -> str | None:
    """The main branch has no name in the protocol."""
    return None if branch == MAIN_BRANCH else branch


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/tags/list", list_table_tags, is_reading=True),
    # Older clients use GET.
    Route("GET", "/v1/table/{id}/tags/list", list_table_tags),
    Route("POST", "/v1/table/{id}/tags/version", get_table_tag_version, is_reading=True),
    Route("POST", "/v1/table/{id}/tags/create", create_table_tag),
    Route("POST", "/v1/table/{id}/tags/update", update_table_tag),
    Route("POST", "/v1/table/{id}/tags/delete", delete_table_tag),
    Route("POST", "/v1/table/{id}/branches/list", list_table_branches, is_reading=True),
    Route("POST", "/v1/table/{id}/branches/create", create_table_branch),
    Route("POST", "/v1/table/{id}/branches/delete", delete_table_branch),
)
