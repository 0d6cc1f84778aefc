"""Operations of the specification that are not served yet: known, and answered as unsupported."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.errors import Unsupported
from tidemill.protocols.http.call import Call, Handler
from tidemill.protocols.http.routing import BodyKind, Route


def _unserved(operation: str) -> Handler:
    def refuse(_call: Call) -> Response:
        raise Unsupported(f"{operation} is not supported yet")

    return refuse


ROUTES: Final = tuple(
    Route(method, pattern, _unserved(operation), BodyKind.IGNORED)
    for method, pattern, operation in (
        ("POST", "/v1/table/{id}/register", "RegisterTable"),
        ("POST", "/v1/table/{id}/deregister", "DeregisterTable"),
        ("POST", "/v1/table/{id}/restore", "RestoreTable"),
        ("POST", "/v1/table/{id}/rename", "RenameTable"),
        ("POST", "/v1/table/{id}/schema_metadata/update", "UpdateTableSchemaMetadata"),
        ("POST", "/v1/table/{id}/version/delete", "BatchDeleteTableVersions"),
        ("POST", "/v1/table/version/batch-create", "BatchCreateTableVersions"),
        ("POST", "/v1/table/batch-commit", "BatchCommitTables"),
        ("POST", "/v1/table/{id}/alter_columns", "AlterTableAlterColumns"),
        ("POST", "/v1/table/{id}/update_field_metadata", "UpdateFieldMetadata"),
        ("POST", "/v1/table/{id}/drop_columns", "AlterTableDropColumns"),
        ("POST", "/v1/table/{id}/stats", "GetTableStats"),
        ("POST", "/v1/table/{id}/merge_insert", "MergeInsertIntoTable"),
        ("POST", "/v1/table/{id}/update", "UpdateTable"),
        ("POST", "/v1/table/{id}/delete", "DeleteFromTable"),
        ("POST", "/v1/table/{id}/explain_plan", "ExplainTableQueryPlan"),
        ("POST", "/v1/table/{id}/analyze_plan", "AnalyzeTableQueryPlan"),
        ("POST", "/v1/table/{id}/create_index", "CreateTableIndex"),
        ("POST", "/v1/table/{id}/create_scalar_index", "CreateTableScalarIndex"),
        ("POST", "/v1/table/{id}/index/list", "ListTableIndices"),
        ("POST", "/v1/table/{id}/index/{index_name}/stats", "DescribeTableIndexStats"),
        ("POST", "/v1/table/{id}/index/{index_name}/drop", "DropTableIndex"),
        ("POST", "/v1/table/{id}/tags/list", "ListTableTags"),
        ("POST", "/v1/table/{id}/tags/version", "GetTableTagVersion"),
        ("POST", "/v1/table/{id}/tags/create", "CreateTableTag"),
        ("POST", "/v1/table/{id}/tags/delete", "DeleteTableTag"),
        ("POST", "/v1/table/{id}/tags/update", "UpdateTableTag"),
        ("POST", "/v1/table/{id}/branches/list", "ListTableBranches"),
        ("POST", "/v1/table/{id}/branches/create", "CreateTableBranch"),
        ("POST", "/v1/table/{id}/branches/delete", "DeleteTableBranch"),
        ("POST", "/v1/transaction/{id}/describe", "DescribeTransaction"),
        ("POST", "/v1/transaction/{id}/alter", "AlterTransaction"),
    )
)
