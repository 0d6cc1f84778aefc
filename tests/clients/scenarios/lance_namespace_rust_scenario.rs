//! The scenario of lance-namespace-reqwest-client, which is generated from the Lance Namespace specification:
//! the operations as in https://lance.org/format/namespace/operations.

use std::collections::HashMap;
use std::env;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use lance_namespace_reqwest_client::apis::configuration::{ApiKey, Configuration};
use lance_namespace_reqwest_client::apis::{Error, data_api, index_api, namespace_api, table_api, tag_api, transaction_api};
use lance_namespace_reqwest_client::models::*;

const ITEMS: &str = "rest$items";

type Outcome = Result<(), String>;

#[tokio::main]
async fn main() {
    let server = connect(&env::var("TIDEMILL_CREDENTIAL").unwrap());
    namespaces(&server).await;
    tables(&server).await;
    rows(&server).await;
    columns(&server).await;
    indexes(&server).await;
    versions(&server).await;
    declared(&server).await;
    refusals(&server).await;
    drops(&server).await;
}

fn connect(credential: &str) -> Configuration {
    let api_key = Some(ApiKey { prefix: None, key: credential.to_string() });
    Configuration { base_path: env::var("TIDEMILL_URL").unwrap(), api_key, ..Configuration::new() }
}

async fn namespaces(server: &Configuration) {
    attempt("create namespace", async {
        let properties = Some(HashMap::from([("owner".to_string(), "data".to_string())]));
        let made = namespace_api::create_namespace(server, "rest", CreateNamespaceRequest { properties, ..Default::default() }, None).await.map_err(said)?;
        is(made.properties.as_ref().is_some_and(|all| all["owner"] == "data"), made)
    }).await;
    attempt("create nested namespace with delimiter", async {
        let request = CreateNamespaceRequest { mode: Some("ExistOk".into()), ..Default::default() };
        namespace_api::create_namespace(server, "rest.eu", request, Some(".")).await.map(drop).map_err(said)
    }).await;
    attempt("list namespaces", async {
        let found = namespace_api::list_namespaces(server, "$", None, None, Some(100)).await.map_err(said)?;
        is(found.namespaces.contains(&"rest".to_string()), &found)?;
        let below = namespace_api::list_namespaces(server, "rest", None, None, None).await.map_err(said)?;
        is(below.namespaces == ["eu"], below)
    }).await;
    attempt("describe namespace", async {
        let found = namespace_api::describe_namespace(server, "rest", DescribeNamespaceRequest::new(), None).await.map_err(said)?;
        is(found.properties.as_ref().is_some_and(|all| all["owner"] == "data"), found)
    }).await;
    attempt("namespace exists", async {
        namespace_api::namespace_exists(server, "rest$eu", NamespaceExistsRequest::new(), None).await.map_err(said)
    }).await;
}

async fn tables(server: &Configuration) {
    attempt("create table", async {
        let made = data_api::create_table(server, ITEMS, stream(&[1, 2, 3]), None, Some("create"), Some(r#"{"team":"a"}"#), None).await.map_err(said)?;
        is(made.version == Some(1), made)
    }).await;
    attempt("list tables", async {
        let found = namespace_api::list_tables(server, "rest", None, None, None, None).await.map_err(said)?;
        is(found.tables == ["items"], &found)?;
        let all = table_api::list_all_tables(server, None, None, None, None).await.map_err(said)?;
        is(all.tables.contains(&ITEMS.to_string()), all)
    }).await;
    attempt("table exists", async {
        table_api::table_exists(server, ITEMS, TableExistsRequest::new(), None).await.map_err(said)
    }).await;
    attempt("describe table", async {
        let found = describe(server).await?;
        is(found.schema.as_ref().is_some_and(|schema| schema.fields.len() == 2) && found.location.is_some(), found)
    }).await;
}

async fn rows(server: &Configuration) {
    attempt("insert rows", async {
        data_api::insert_into_table(server, ITEMS, stream(&[4, 5]), None, None, Some("append")).await.map_err(said)?;
        counts(server, None, 5).await
    }).await;
    attempt("count rows with predicate", counts(server, Some("id > 3"), 2)).await;
    attempt("query rows", reads(server, "id > 1", &[2, 3, 4, 5])).await;
    attempt("update rows", async {
        let mut request = UpdateTableRequest::new(vec![vec!["name".into(), "'changed'".into()]]);
        request.predicate = Some("id = 5".into());
        data_api::update_table(server, ITEMS, request, None).await.map_err(said)?;
        reads(server, "name = 'changed'", &[5]).await
    }).await;
    attempt("merge insert rows", async {
        data_api::merge_insert_into_table(server, ITEMS, vec!["id".into()], stream(&[5, 6]), None, None, Some(true), None, Some(true), None, None, None, None).await.map_err(said)?;
        reads(server, "name = 'n'", &[1, 2, 3, 4, 5, 6]).await
    }).await;
    attempt("delete rows", async {
        data_api::delete_from_table(server, ITEMS, DeleteFromTableRequest::new("id = 6".into()), None).await.map_err(said)?;
        counts(server, None, 5).await
    }).await;
    attempt("explain query plan", async {
        let plan = data_api::explain_table_query_plan(server, ITEMS, ExplainTableQueryPlanRequest::new(query("id > 1")), None).await.map_err(said)?;
        is(!plan.is_empty(), plan)
    }).await;
    attempt("table statistics", async {
        let found = table_api::get_table_stats(server, ITEMS, GetTableStatsRequest::new(), None).await.map_err(said)?;
        is(found.num_rows == 5, found)
    }).await;
}

async fn columns(server: &Configuration) {
    attempt("add columns", async {
        let mut twice = AddColumnsEntry::new("twice".into());
        twice.expression = Some(Some("id * 2".into()));
        data_api::alter_table_add_columns(server, ITEMS, AlterTableAddColumnsRequest::new(vec![twice]), None).await.map_err(said)?;
        reads(server, "twice = 8", &[4]).await
    }).await;
    attempt("alter columns", async {
        let mut entry = AlterColumnsEntry::new("twice".into());
        entry.rename = Some(Some("double".into()));
        table_api::alter_table_alter_columns(server, ITEMS, AlterTableAlterColumnsRequest::new(vec![entry]), None).await.map_err(said)?;
        reads(server, "double = 8", &[4]).await
    }).await;
    attempt("drop columns", async {
        table_api::alter_table_drop_columns(server, ITEMS, AlterTableDropColumnsRequest::new(vec!["double".into()]), None).await.map_err(said)?;
        let found = describe(server).await?;
        is(found.schema.as_ref().is_some_and(|schema| schema.fields.len() == 2), found)
    }).await;
    attempt("update schema metadata", async {
        let metadata = HashMap::from([("purpose".to_string(), "scenario".to_string())]);
        let found = table_api::update_table_schema_metadata(server, ITEMS, metadata, None, None).await.map_err(said)?;
        is(found["purpose"] == "scenario", found)
    }).await;
}

async fn indexes(server: &Configuration) {
    attempt("create scalar index", async {
        let mut request = CreateTableIndexRequest::new("id".into(), "BTREE".into());
        request.name = Some("by_id".into());
        index_api::create_table_scalar_index(server, ITEMS, request, None).await.map(drop).map_err(said)
    }).await;
    attempt("index statistics", async {
        // A worker of the server builds the index.
        for _ in 0..120 {
            let found = index_api::describe_table_index_stats(server, ITEMS, "by_id", DescribeTableIndexStatsRequest::new(), None).await.map_err(said)?;
            if found.num_indexed_rows == Some(5) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Err("the index was not built within four minutes".into())
    }).await;
    attempt("list indexes", async {
        let found = index_api::list_table_indices(server, ITEMS, ListTableIndicesRequest::new(), None).await.map_err(said)?;
        is(found.indexes.len() == 1 && found.indexes[0].columns == ["id"], found)
    }).await;
    attempt("drop index", async {
        index_api::drop_table_index(server, ITEMS, "by_id", None, None).await.map(drop).map_err(said)
    }).await;
}

async fn versions(server: &Configuration) {
    attempt("list versions", async {
        let found = table_api::list_table_versions(server, ITEMS, None, None, None, Some(2), Some(true)).await.map_err(said)?;
        is(found.versions.len() == 2 && found.versions[0].version > found.versions[1].version, found)
    }).await;
    attempt("tags", async {
        tag_api::create_table_tag(server, ITEMS, CreateTableTagRequest::new("first".into(), 1), None).await.map_err(said)?;
        tag_api::update_table_tag(server, ITEMS, UpdateTableTagRequest::new("first".into(), 2), None).await.map_err(said)?;
        let found = tag_api::get_table_tag_version(server, ITEMS, GetTableTagVersionRequest::new("first".into()), None).await.map_err(said)?;
        is(found.version == 2, found)?;
        let all = tag_api::list_table_tags(server, ITEMS, None, None, None).await.map_err(said)?;
        is(all.tags.contains_key("first"), all)?;
        tag_api::delete_table_tag(server, ITEMS, DeleteTableTagRequest::new("first".into()), None).await.map(drop).map_err(said)
    }).await;
    attempt("branches", async {
        table_api::create_table_branch(server, ITEMS, CreateTableBranchRequest::new("trial".into()), None).await.map_err(said)?;
        data_api::insert_into_table(server, ITEMS, stream(&[9]), None, Some("trial"), None).await.map_err(said)?;
        counts(server, None, 5).await?;
        let all = table_api::list_table_branches(server, ITEMS, None, None, None).await.map_err(said)?;
        is(all.branches.contains_key("trial"), all)?;
        table_api::delete_table_branch(server, ITEMS, DeleteTableBranchRequest::new("trial".into()), None).await.map(drop).map_err(said)
    }).await;
    attempt("restore table", async {
        table_api::restore_table(server, ITEMS, RestoreTableRequest::new(1), None).await.map_err(said)?;
        reads(server, "id > 0", &[1, 2, 3]).await
    }).await;
}

async fn declared(server: &Configuration) {
    attempt("declare table", async {
        let made = table_api::declare_table(server, "rest$later", DeclareTableRequest::new(), None).await.map_err(said)?;
        is(made.location.is_some(), made)
    }).await;
    attempt("batch commit", async {
        let mut one = DeclareTableRequest::new();
        one.id = Some(vec!["rest".into(), "batched".into()]);
        let mut operation = CommitTableOperation::new();
        operation.declare_table = Some(Box::new(one));
        transaction_api::batch_commit_tables(server, BatchCommitTablesRequest::new(vec![operation]), None).await.map(drop).map_err(said)
    }).await;
    attempt("deregister and register table", async {
        let gone = table_api::deregister_table(server, ITEMS, DeregisterTableRequest::new(), None).await.map_err(said)?;
        let location = gone.location.ok_or("no location")?;
        table_api::register_table(server, ITEMS, RegisterTableRequest::new(location), None).await.map_err(said)?;
        counts(server, None, 3).await
    }).await;
    attempt("rename table", async {
        let mut request = RenameTableRequest::new("moved".into());
        request.new_namespace_id = Some(vec!["rest".into(), "eu".into()]);
        table_api::rename_table(server, ITEMS, request, None).await.map_err(said)?;
        table_api::table_exists(server, "rest$eu$moved", TableExistsRequest::new(), None).await.map_err(said)
    }).await;
}

async fn refusals(server: &Configuration) {
    refused("refused credential", 401, namespace_api::list_namespaces(&connect("foreign:wrong"), "$", None, None, None).await);
    refused("describe missing table", 404, table_api::describe_table(server, "rest$nothing", DescribeTableRequest::new(), None, None, None, None).await);
    refused("describe missing namespace", 404, namespace_api::describe_namespace(server, "nowhere", DescribeNamespaceRequest::new(), None).await);
    refused("create existing namespace", 409, namespace_api::create_namespace(server, "rest", CreateNamespaceRequest::new(), None).await);
    refused("create existing table", 409, data_api::create_table(server, "rest$eu$moved", stream(&[1]), None, None, None, None).await);
    refused("create table from bad bytes", 400, data_api::create_table(server, "rest$bad", b"no arrow".to_vec(), None, None, None, None).await);
    refused("bad filter", 400, data_api::query_table(server, "rest$eu$moved", query("no_such_column = 1"), None).await);
    refused("drop namespace with tables", 409, namespace_api::drop_namespace(server, "rest", DropNamespaceRequest::new(), None).await);
}

async fn drops(server: &Configuration) {
    attempt("drop table", async {
        table_api::drop_table(server, "rest$eu$moved", None).await.map(drop).map_err(said)
    }).await;
    attempt("drop namespace and all below", async {
        let request = DropNamespaceRequest { behavior: Some("Cascade".into()), ..Default::default() };
        namespace_api::drop_namespace(server, "rest", request, None).await.map(drop).map_err(said)
    }).await;
}

fn stream(ids: &[i64]) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]));
    let names = StringArray::from_iter_values(ids.iter().map(|_| "n"));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(names)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// A query without a vector is a scan.
fn query(filter: &str) -> QueryTableRequest {
    let mut request = QueryTableRequest::new(100, QueryTableRequestVector::new());
    request.filter = Some(filter.into());
    request
}

async fn reads(server: &Configuration, filter: &str, expected: &[i64]) -> Outcome {
    let answer = data_api::query_table(server, ITEMS, query(filter), None).await.map_err(said)?;
    let bytes = answer.bytes().await.map_err(|error| error.to_string())?;
    let reader = FileReader::try_new(std::io::Cursor::new(bytes), None).map_err(|error| error.to_string())?;
    let mut found: Vec<i64> = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|error| error.to_string())?;
        let ids = batch.column_by_name("id").ok_or("no column id")?;
        found.extend(ids.as_any().downcast_ref::<Int64Array>().ok_or("id is not a long")?.values());
    }
    found.sort();
    is(found == expected, found)
}

async fn counts(server: &Configuration, predicate: Option<&str>, expected: i64) -> Outcome {
    let request = CountTableRowsRequest { predicate: predicate.map(str::to_string), ..Default::default() };
    let found = data_api::count_table_rows(server, ITEMS, request, None).await.map_err(said)?;
    is(found == expected, found)
}

async fn describe(server: &Configuration) -> Result<DescribeTableResponse, String> {
    table_api::describe_table(server, ITEMS, DescribeTableRequest::new(), None, Some(true), Some(true), None).await.map_err(said)
}

fn said<T>(error: Error<T>) -> String {
    match error {
        Error::ResponseError(answer) => format!("{}: {}", answer.status, answer.content),
        other => other.to_string(),
    }
}

fn is(expected: bool, got: impl Debug) -> Outcome {
    if expected { Ok(()) } else { Err(format!("got {got:?}")) }
}

async fn attempt(operation: &str, run: impl Future<Output = Outcome>) {
    say(operation, run.await.err());
}

fn refused<T, E>(operation: &str, expected: u16, answer: Result<T, Error<E>>) {
    say(operation, match answer {
        Err(Error::ResponseError(answer)) if answer.status.as_u16() == expected => {
            serde_json::from_str::<ErrorResponse>(&answer.content).err().map(|error| error.to_string())
        }
        Err(error) => Some(format!("expected {expected}, got {}", said(error))),
        Ok(_) => Some(format!("expected {expected}, got an answer")),
    });
}

fn say(operation: &str, detail: Option<String>) {
    let outcome = if detail.is_none() { "pass" } else { "fail" };
    println!("{}", serde_json::json!({"operation": operation, "outcome": outcome, "detail": detail}));
}
