"""The client that is generated from the Lance Namespace specification: every group of its operations."""

import base64
import io
import json
import time
from urllib.parse import urlencode

import lance_namespace_urllib3_client as generated
import pyarrow as pa
import urllib3
from lance_namespace_urllib3_client import models as m
from lance_namespace_urllib3_client.exceptions import ApiException
from trying import CREDENTIAL, ICEBERG_URL, URL, check, operation, refused

PATIENCE_SECONDS = 240
FORM = {"content-type": "application/x-www-form-urlencoded"}
SCAN = m.QueryTableRequestVector(single_vector=[])


def client(**auth):
    return generated.ApiClient(generated.Configuration(host=URL, **auth))


lake = client(api_key={"ApiKeyAuth": CREDENTIAL})
namespaces, tables = generated.NamespaceApi(lake), generated.TableApi(lake)
tags, branches, indexes = generated.TagApi(lake), generated.BranchApi(lake), generated.IndexApi(lake)
views, transactions = generated.MaterializedViewApi(lake), generated.TransactionApi(lake)


def stream(**columns):
    table, sink = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def rows(table="sales$people", **options):
    found = tables.query_table(table, m.QueryTableRequest(k=100, vector=SCAN, **options))
    return sorted(tuple(row.values()) for row in pa.ipc.open_file(bytes(found)).read_all().to_pylist())


def status(action):
    try:
        action()
    except ApiException as error:
        return error.status, m.ErrorResponse.from_json(error.body).code
    raise AssertionError("nothing was refused")


def soon(look, wanted):
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while (found := look()) != wanted and time.monotonic() < give_up_at:
        time.sleep(1)
    check(found, wanted)


with operation("wrong and missing API key"):
    wrong = generated.NamespaceApi(client(api_key={"ApiKeyAuth": "foreign:wrong"}))
    check(status(lambda: wrong.list_namespaces("$"))[0], 401)
    check(status(lambda: generated.NamespaceApi(client()).list_namespaces("$"))[0], 401)
with operation("OAuth2 bearer token"):
    identity, secret = CREDENTIAL.split(":")
    form = {"grant_type": "client_credentials", "client_id": identity, "client_secret": secret}
    answer = urllib3.request("POST", f"{ICEBERG_URL}/v1/oauth/tokens", body=urlencode(form), headers=FORM)
    bearer = generated.NamespaceApi(client(access_token=answer.json()["access_token"]))
    check(bearer.list_namespaces("$").namespaces, [])
with operation("create namespace"):
    made = namespaces.create_namespace("sales", m.CreateNamespaceRequest(properties={"owner": "ann"}))
    check(made.properties["owner"], "ann")
    namespaces.create_namespace("sales$eu", m.CreateNamespaceRequest())
    check(status(lambda: namespaces.create_namespace("sales", m.CreateNamespaceRequest())), (409, 2))
    namespaces.create_namespace("sales", m.CreateNamespaceRequest(mode="ExistOk"))
with operation("list and describe namespaces"):
    check(namespaces.list_namespaces("sales").namespaces, ["eu"])
    check(namespaces.describe_namespace("sales", m.DescribeNamespaceRequest()).properties["owner"], "ann")
    namespaces.namespace_exists("sales$eu", m.NamespaceExistsRequest())
    check(status(lambda: namespaces.namespace_exists("no", m.NamespaceExistsRequest())), (404, 1))
with operation("drop namespace"):
    namespaces.drop_namespace("sales$eu", m.DropNamespaceRequest())
    check(status(lambda: namespaces.drop_namespace("sales$eu", m.DropNamespaceRequest())), (404, 1))
with operation("create table"):
    made = tables.create_table("sales$people", stream(id=[1, 2], name=["ann", "bob"]), mode="create")
    check(made.version, 1)
    check(status(lambda: tables.create_table("sales$people", stream(id=[1]), mode="create")), (409, 5))
with operation("insert and query"):
    check(tables.insert_into_table("sales$people", stream(id=[3], name=["cy"])).version, 2)
    check(rows(), [(1, "ann"), (2, "bob"), (3, "cy")])
    check(rows(filter="id > 1", columns=m.QueryTableRequestColumns(column_names=["id"])), [(2,), (3,)])
    check(tables.count_table_rows("sales$people", m.CountTableRowsRequest(predicate="id < 3")), 2)
with operation("merge insert"):
    merged = tables.merge_insert_into_table(
        "sales$people",
        ["id"],
        stream(id=[3, 4], name=["cyd", "dan"]),
        when_matched_update_all=True,
        when_not_matched_insert_all=True,
    )
    check((merged.num_updated_rows, merged.num_inserted_rows), (1, 1))
with operation("update and delete"):
    update = m.UpdateTableRequest(predicate="id = 1", updates=[["name", "'zoe'"]])
    check(tables.update_table("sales$people", update).updated_rows, 1)
    tables.delete_from_table("sales$people", m.DeleteFromTableRequest(predicate="id = 4"))
    check(rows(), [(1, "zoe"), (2, "bob"), (3, "cyd")])
with operation("explain and analyze"):
    explain = m.ExplainTableQueryPlanRequest(query=m.QueryTableRequest(k=1, vector=SCAN), verbose=True)
    assert "LanceRead" in tables.explain_table_query_plan("sales$people", explain)
    analyze = m.AnalyzeTableQueryPlanRequest(k=1, vector=SCAN)
    assert "metrics" in tables.analyze_table_query_plan("sales$people", analyze)
with operation("describe table"):
    found = tables.describe_table("sales$people", m.DescribeTableRequest(), load_detailed_metadata=True)
    check([one.name for one in found.var_schema.fields], ["id", "name"])
    check(tables.get_table_stats("sales$people", m.GetTableStatsRequest()).num_rows, 3)
    tables.table_exists("sales$people", m.TableExistsRequest())
    check(status(lambda: tables.table_exists("sales$nobody", m.TableExistsRequest())), (404, 4))
with operation("versions and time travel"):
    listed = tables.list_table_versions("sales$people", descending=True)
    check([one.version for one in listed.versions], [5, 4, 3, 2, 1])
    check(rows(version=1), [(1, "ann"), (2, "bob")])
    describe = m.DescribeTableVersionRequest(version=2)
    check(tables.describe_table_version("sales$people", describe).version.version, 2)
    tables.restore_table("sales$people", m.RestoreTableRequest(version=1))
    check(rows(), [(1, "ann"), (2, "bob")])
with operation("tags"):
    tags.create_table_tag("sales$people", m.CreateTableTagRequest(tag="v1", version=1))
    tags.update_table_tag("sales$people", m.UpdateTableTagRequest(tag="v1", version=2))
    check(tags.get_table_tag_version("sales$people", m.GetTableTagVersionRequest(tag="v1")).version, 2)
    check(list(tags.list_table_tags("sales$people").tags), ["v1"])
    tags.delete_table_tag("sales$people", m.DeleteTableTagRequest(tag="v1"))
with operation("branches"):
    branches.create_table_branch("sales$people", m.CreateTableBranchRequest(name="dev", from_version=1))
    tables.insert_into_table("sales$people", stream(id=[9], name=["eve"]), branch="dev")
    check((len(rows(branch="dev")), len(rows())), (3, 2))
    check(list(branches.list_table_branches("sales$people").branches), ["dev"])
    branches.delete_table_branch("sales$people", m.DeleteTableBranchRequest(name="dev"))
with operation("schema evolution"):
    add = m.AlterTableAddColumnsRequest(new_columns=[m.AddColumnsEntry(name="twice", expression="id * 2")])
    tables.alter_table_add_columns("sales$people", add)
    change = [m.AlterColumnsEntry(path="twice", rename="double")]
    tables.alter_table_alter_columns("sales$people", m.AlterTableAlterColumnsRequest(alterations=change))
    check(rows(), [(1, "ann", 2), (2, "bob", 4)])
    note = [m.UpdateFieldMetadataEntry(path="double", metadata={"unit": "one"})]
    tables.update_field_metadata("sales$people", m.UpdateFieldMetadataRequest(updates=note))
    tables.alter_table_drop_columns("sales$people", m.AlterTableDropColumnsRequest(columns=["double"]))
    check(tables.update_table_schema_metadata("sales$people", {"owner": "ann"})["owner"], "ann")
with operation("bad input"):
    check(status(lambda: rows(filter="nothing = 1"))[0], 400)
    check(status(lambda: tables.insert_into_table("sales$people", b"no stream"))[0], 400)
    check(status(lambda: rows("sales$nobody")), (404, 4))
with operation("transactions"):
    last = tables.list_table_versions("sales$people", descending=True).versions[0].version
    identity = f"sales$people${last}"
    found = transactions.describe_transaction(identity, m.DescribeTransactionRequest())
    check(found.status.upper(), "SUCCEEDED")
    action = m.AlterTransactionAction(set_property_action=m.AlterTransactionSetProperty(key="by", value="me"))
    transactions.alter_transaction(identity, m.AlterTransactionRequest(actions=[action]))
    found = transactions.describe_transaction(identity, m.DescribeTransactionRequest())
    check(found.properties["by"], "me")
with operation("delete versions"):
    span = m.BatchDeleteTableVersionsRequest(ranges=[m.VersionRange(start_version=2, end_version=4)])
    check(tables.batch_delete_table_versions("sales$people", span).deleted_count, 2)
with operation("declare, register, rename"):
    check(tables.declare_table("sales$later", m.DeclareTableRequest()).managed_versioning, True)
    check(tables.list_tables("sales", include_declared=True).tables, ["later", "people"])
    place = tables.deregister_table("sales$people", m.DeregisterTableRequest()).location
    tables.register_table("sales$again", m.RegisterTableRequest(location=place))
    tables.rename_table("sales$again", m.RenameTableRequest(new_table_name="people"))
    check(len(rows()), 2)
with operation("batch commit"):
    declare = m.CommitTableOperation(declare_table=m.DeclareTableRequest(id=["sales", "first"]))
    drop = m.CommitTableOperation(deregister_table=m.DeregisterTableRequest(id=["sales", "later"]))
    transactions.batch_commit_tables(m.BatchCommitTablesRequest(operations=[declare, drop]))
    check(tables.list_tables("sales", include_declared=True).tables, ["first", "people"])
with operation("indexes"):
    index = m.CreateTableIndexRequest(column="id", index_type="BTREE", name="by_id")
    indexes.create_table_scalar_index("sales$people", index)
    request = m.ListTableIndicesRequest()
    check([one.index_name for one in indexes.list_table_indices("sales$people", request).indexes], ["by_id"])
    stats = m.DescribeTableIndexStatsRequest()
    soon(lambda: indexes.describe_table_index_stats("sales$people", "by_id", stats).num_indexed_rows, 2)
    indexes.drop_table_index("sales$people", "by_id")
with operation("materialized view"):
    schema = pa.schema([pa.field("id", pa.int64())])
    query = {"format": "tidemill.query/1", "source": ["sales", "people"], "columns": {"id": "id"}}
    request = m.CreateMaterializedViewRequest(
        kind="query",
        source_query=json.dumps({**query, "filter": "id > 1"}),
        output_schema=base64.b64encode(schema.serialize().to_pybytes()).decode(),
        with_no_data=True,
    )
    views.create_materialized_view("sales$late", request)
    assert views.refresh_materialized_view(
        "sales$late", refresh_materialized_view_request=m.RefreshMaterializedViewRequest()
    ).job_id
    soon(lambda: rows("sales$late"), [(2,)])
with operation("drop table"):
    # A view is made from it.
    check(status(lambda: tables.drop_table("sales$people")), (409, 19))
    tables.drop_table("sales$late")
    tables.drop_table("sales$people")
    check(status(lambda: rows()), (404, 4))
    namespaces.drop_namespace("sales", m.DropNamespaceRequest(behavior="Cascade"))
    refused(lambda: namespaces.describe_namespace("sales", m.DescribeNamespaceRequest()), "404")
