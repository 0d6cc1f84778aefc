"""Routes of table versions, through which clients commit; restore, statistics and schema metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, TableVersion
from tidemill.errors import InvalidInput
from tidemill.lance.model.tables import TableStatistics
from tidemill.lance.versions.commit import Order
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import query_integer, table_of
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import branch_of, json_mapping, version_entry, version_json
from tidemill.protocols.lance.requests import flag_of, read_page, table_request

# The threshold that Lance's own clients use.
SMALL_FRAGMENT_ROWS: Final = 100_000


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
    version = call.operations.versions.describe(call.caller, ident, branch, body.integer("version", 0))
    return json_response({"version": version_json(version)})


def restore_table(call: Call) -> Response:
    ident, body = table_request(call)
    version = body.required_integer("version", 0)
    call.operations.snapshots.restore(call.caller, ident, branch_of(call, body), version)
    return json_response({})


def get_table_stats(call: Call) -> Response:
    ident, body = table_request(call)
    return json_response(
        _statistics_json(call.operations.snapshots.statistics(call.caller, ident, branch_of(call, body)))
    )


def update_table_schema_metadata(call: Call) -> Response:
    """The body is the metadata itself, with any keys, even `id` and `branch`.

    It replaces all metadata, so a missing body is rejected instead of being treated as empty.
    """
    if call.body.strip() in (b"", b"null"):
        raise InvalidInput("body", "is missing; it must be the metadata as a JSON object, {} for none")
    metadata = json_mapping(call.body, "body")
    if "" in metadata:
        raise InvalidInput("body", "contains an empty key; every key needs a name")
    branch = call.query.get("branch") or MAIN_BRANCH
    result = call.operations.snapshots.replace_schema_metadata(call.caller, table_of(call), branch, metadata)
    return json_response(dict(result))


def _statistics_json(result: TableStatistics) -> dict[str, Any]:
    lengths = result.fragment_rows
    return {
        "total_bytes": result.bytes_on_disk,
        "num_rows": result.rows,
        "num_indices": result.indices,
        "fragment_stats": {
            "num_fragments": len(lengths),
            "num_small_fragments": sum(length < SMALL_FRAGMENT_ROWS for length in lengths),
            "lengths": _lengths_json(lengths),
        },
    }


def _lengths_json(lengths: Sequence[int]) -> dict[str, int]:
    """`lengths` is sorted. Without fragments all values are 0, because clients require every field."""
    count = len(lengths)
    if not count:
        return dict.fromkeys(("min", "max", "mean", "p25", "p50", "p75", "p99"), 0)
    return {
        "min": lengths[0],
        "max": lengths[-1],
        "mean": sum(lengths) // count,
        **{f"p{percent}": lengths[count * percent // 100] for percent in (25, 50, 75, 99)},
    }


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/version/create", create_table_version, is_quick=True),
    Route("POST", "/v1/table/{id}/version/list", list_table_versions, is_quick=True, is_reading=True),
    Route("POST", "/v1/table/{id}/version/describe", describe_table_version, is_quick=True, is_reading=True),
    Route("POST", "/v1/table/{id}/restore", restore_table),
    Route("POST", "/v1/table/{id}/stats", get_table_stats, is_reading=True),
    # Older clients use GET.
    Route("GET", "/v1/table/{id}/stats", get_table_stats),
    Route("POST", "/v1/table/{id}/schema_metadata/update", update_table_schema_metadata),
)
