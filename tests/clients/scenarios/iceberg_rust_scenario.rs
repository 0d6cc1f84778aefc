//! The scenario of iceberg-rust: its REST catalog as in https://rust.iceberg.apache.org/api.html.

use std::collections::HashMap;
use std::env;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use futures::TryStreamExt;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::expr::Reference;
use iceberg::io::LocalFsStorageFactory;
use iceberg::spec::*;
use iceberg::table::Table;
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{DefaultFileNameGenerator, DefaultLocationGenerator};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::{IcebergWriter, IcebergWriterBuilder};
use iceberg::{Catalog, CatalogBuilder, Error, ErrorKind, NamespaceIdent, Result, TableCreation, TableIdent};
use iceberg_catalog_rest::{REST_CATALOG_PROP_URI, REST_CATALOG_PROP_WAREHOUSE, RestCatalog, RestCatalogBuilder};
use parquet::file::properties::WriterProperties;

#[tokio::main]
async fn main() {
    let credential = env::var("TIDEMILL_CREDENTIAL").unwrap();
    let catalog = connect(&credential).await.unwrap();
    namespaces(&catalog).await;
    tables(&catalog).await;
    rows(&catalog).await;
    evolution(&catalog).await;
    refusals(&catalog).await;
    drops(&catalog).await;
}

async fn connect(credential: &str) -> Result<RestCatalog> {
    let properties = HashMap::from([
        (REST_CATALOG_PROP_URI.to_string(), env::var("TIDEMILL_ICEBERG_URL").unwrap()),
        (REST_CATALOG_PROP_WAREHOUSE.to_string(), env::var("TIDEMILL_WAREHOUSE").unwrap()),
        ("credential".to_string(), credential.to_string()),
    ]);
    RestCatalogBuilder::default().with_storage_factory(Arc::new(LocalFsStorageFactory)).load("lake", properties).await
}

async fn namespaces(catalog: &RestCatalog) {
    let owner = HashMap::from([("owner".to_string(), "data".to_string())]);
    attempt("create namespace", async {
        let made = catalog.create_namespace(&namespace(&["rust"]), owner).await?;
        is(made.properties().get("owner").map(String::as_str) == Some("data"), made)
    }).await;
    attempt("create nested namespace", catalog.create_namespace(&namespace(&["rust", "eu"]), HashMap::new())).await;
    attempt("list namespaces", async {
        let found = catalog.list_namespaces(None).await?;
        is(found.contains(&namespace(&["rust"])), found)
    }).await;
    attempt("list nested namespaces", async {
        let found = catalog.list_namespaces(Some(&namespace(&["rust"]))).await?;
        is(found == [namespace(&["rust", "eu"])], found)
    }).await;
    attempt("get namespace", async {
        let found = catalog.get_namespace(&namespace(&["rust"])).await?;
        is(found.properties()["owner"] == "data", found)
    }).await;
    attempt("namespace exists", async {
        let found = catalog.namespace_exists(&namespace(&["rust", "eu"])).await?;
        is(found && !catalog.namespace_exists(&namespace(&["nowhere"])).await?, found)
    }).await;
}

async fn tables(catalog: &RestCatalog) {
    let home = namespace(&["rust"]);
    attempt("create table", async {
        let made = TableCreation::builder().name("orders".into()).schema(schema())
            .properties([("owner".to_string(), "data".to_string())]).build();
        let made = catalog.create_table(&home, made).await?;
        is(made.metadata().properties()["owner"] == "data" && made.metadata_location().is_some(), made)
    }).await;
    attempt("create partitioned and sorted table", async {
        let spec = UnboundPartitionSpec::builder().with_spec_id(0)
            .add_partition_field(1, "bucket", Transform::Bucket(4))?.build();
        let by_name = SortField::builder().source_id(2).direction(SortDirection::Ascending)
            .null_order(NullOrder::First).transform(Transform::Identity).build();
        let order = SortOrder::builder().with_order_id(1).with_sort_field(by_name).build(&schema())?;
        let made = TableCreation::builder().name("events".into()).schema(schema()).partition_spec(spec).sort_order(order).build();
        let made = catalog.create_table(&home, made).await?;
        let metadata = made.metadata();
        is(metadata.default_partition_spec().fields().len() == 1 && metadata.default_sort_order().fields.len() == 1, metadata)
    }).await;
    attempt("create table in nested namespace", async {
        let made = TableCreation::builder().name("deep".into()).schema(schema()).build();
        catalog.create_table(&namespace(&["rust", "eu"]), made).await
    }).await;
    attempt("list tables", async {
        let mut found: Vec<_> = catalog.list_tables(&home).await?.iter().map(|one| one.name().to_string()).collect();
        found.sort();
        is(found == ["events", "orders"], found)
    }).await;
    attempt("table exists", async {
        let found = catalog.table_exists(&table(&["rust", "orders"])).await?;
        is(found && !catalog.table_exists(&table(&["rust", "nothing"])).await?, found)
    }).await;
    attempt("rename table", async {
        catalog.rename_table(&table(&["rust", "eu", "deep"]), &table(&["rust", "moved"])).await?;
        catalog.load_table(&table(&["rust", "moved"])).await
    }).await;
}

async fn rows(catalog: &RestCatalog) {
    let orders = table(&["rust", "orders"]);
    attempt("append rows", append(catalog, &orders, &[1, 2, 3])).await;
    attempt("read rows", reads(catalog, &orders, &[1, 2, 3])).await;
    attempt("append again", append(catalog, &orders, &[4])).await;
    attempt("filtered scan", async {
        let loaded = catalog.load_table(&orders).await?;
        let scan = loaded.scan().select(["id"]).with_filter(Reference::new("id").greater_than(Datum::long(2))).build()?;
        let found = ids(scan.to_arrow().await?.try_collect().await?);
        is(found == [3, 4], found)
    }).await;
    attempt("time travel", async {
        let loaded = catalog.load_table(&orders).await?;
        let first = loaded.metadata().history().first().map(|entry| entry.snapshot_id).unwrap_or_default();
        let scan = loaded.scan().snapshot_id(first).select(["id"]).build()?;
        let found = ids(scan.to_arrow().await?.try_collect().await?);
        is(found == [1, 2, 3], found)
    }).await;
    attempt("inspect snapshots", async {
        let loaded = catalog.load_table(&orders).await?;
        let found: Vec<RecordBatch> = loaded.inspect().snapshots().scan().await?.try_collect().await?;
        let count: usize = found.iter().map(RecordBatch::num_rows).sum();
        is(count == 2, count)
    }).await;
    attempt("concurrent append is retried", async {
        let stale = catalog.load_table(&orders).await?;
        append(catalog, &orders, &[5]).await?;
        append_to(catalog, &stale, &[6]).await?;
        reads(catalog, &orders, &[1, 2, 3, 4, 5, 6]).await
    }).await;
    attempt("expire snapshots", async {
        let loaded = catalog.load_table(&orders).await?;
        let transaction = Transaction::new(&loaded);
        let action = transaction.expire_snapshots().retain_last(1).expire_older_than_ms(i64::MAX);
        let done = action.apply(transaction)?.commit(catalog).await?;
        is(done.metadata().snapshots().count() == 1, done.metadata().snapshots().count())
    }).await;
}

async fn evolution(catalog: &RestCatalog) {
    let orders = table(&["rust", "orders"]);
    attempt("evolve schema", async {
        let loaded = catalog.load_table(&orders).await?;
        let transaction = Transaction::new(&loaded);
        let tip = AddColumn::optional("tip", Type::Primitive(PrimitiveType::Double));
        let done = transaction.update_schema().add_column(tip).delete_column("name").apply(transaction)?.commit(catalog).await?;
        let schema = done.metadata().current_schema();
        is(schema.field_by_name("tip").is_some() && schema.field_by_name("name").is_none(), schema)
    }).await;
    attempt("replace sort order", async {
        let loaded = catalog.load_table(&orders).await?;
        let transaction = Transaction::new(&loaded);
        let action = transaction.replace_sort_order().desc("id", NullOrder::Last);
        let done = action.apply(transaction)?.commit(catalog).await?;
        is(done.metadata().default_sort_order().fields.len() == 1, done.metadata().default_sort_order())
    }).await;
    attempt("set and remove table properties", async {
        let loaded = catalog.load_table(&orders).await?;
        let transaction = Transaction::new(&loaded);
        let action = transaction.update_table_properties().set("team".into(), "a".into()).remove("owner".into());
        let done = action.apply(transaction)?.commit(catalog).await?;
        let properties = done.metadata().properties();
        is(properties.contains_key("team") && !properties.contains_key("owner"), properties)
    }).await;
    attempt("upgrade format version", async {
        let loaded = catalog.load_table(&orders).await?;
        let transaction = Transaction::new(&loaded);
        let done = transaction.upgrade_table_version().set_format_version(FormatVersion::V3).apply(transaction)?.commit(catalog).await?;
        is(done.metadata().format_version() == FormatVersion::V3, done.metadata().format_version())
    }).await;
    attempt("read after evolution", reads(catalog, &orders, &[1, 2, 3, 4, 5, 6])).await;
    attempt("register table", async {
        let metadata = catalog.load_table(&orders).await?.metadata_location_result()?.to_string();
        catalog.drop_table(&orders).await?;
        catalog.register_table(&orders, metadata).await?;
        reads(catalog, &orders, &[1, 2, 3, 4, 5, 6]).await
    }).await;
}

async fn refusals(catalog: &RestCatalog) {
    refused("refused credential", ErrorKind::Unexpected, async {
        connect("foreign:wrong").await?.list_namespaces(None).await
    }).await;
    refused("load missing table", ErrorKind::TableNotFound, catalog.load_table(&table(&["rust", "nothing"]))).await;
    refused("get missing namespace", ErrorKind::NamespaceNotFound, catalog.get_namespace(&namespace(&["nowhere"]))).await;
    refused("create existing namespace", ErrorKind::NamespaceAlreadyExists, catalog.create_namespace(&namespace(&["rust"]), HashMap::new())).await;
    let creation = |name: &str| TableCreation::builder().name(name.to_string()).schema(schema()).build();
    refused("create existing table", ErrorKind::TableAlreadyExists, catalog.create_table(&namespace(&["rust"]), creation("orders"))).await;
    refused("create table in missing namespace", ErrorKind::NamespaceNotFound, catalog.create_table(&namespace(&["nowhere"]), creation("t"))).await;
    refused("drop namespace with tables", ErrorKind::Unexpected, catalog.drop_namespace(&namespace(&["rust"]))).await;
    refused("register missing metadata", ErrorKind::Unexpected, catalog.register_table(&table(&["rust", "lost"]), "file:///nowhere/v1.metadata.json".into())).await;
}

async fn drops(catalog: &RestCatalog) {
    attempt("drop tables", async {
        catalog.drop_table(&table(&["rust", "orders"])).await?;
        catalog.drop_table(&table(&["rust", "moved"])).await
    }).await;
    attempt("purge table", catalog.purge_table(&table(&["rust", "events"]))).await;
    attempt("drop namespaces", async {
        catalog.drop_namespace(&namespace(&["rust", "eu"])).await?;
        catalog.drop_namespace(&namespace(&["rust"])).await
    }).await;
}

fn namespace(levels: &[&str]) -> NamespaceIdent {
    NamespaceIdent::from_strs(levels).unwrap()
}

fn table(names: &[&str]) -> TableIdent {
    TableIdent::from_strs(names).unwrap()
}

fn schema() -> Schema {
    let fields = [
        NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)).into(),
        NestedField::optional(2, "name", Type::Primitive(PrimitiveType::String)).into(),
    ];
    Schema::builder().with_fields(fields).with_identifier_field_ids([1]).build().unwrap()
}

async fn append(catalog: &RestCatalog, ident: &TableIdent, values: &[i64]) -> Result<Table> {
    append_to(catalog, &catalog.load_table(ident).await?, values).await
}

async fn append_to(catalog: &RestCatalog, loaded: &Table, values: &[i64]) -> Result<Table> {
    let schema = loaded.metadata().current_schema().clone();
    let names = StringArray::from_iter_values(values.iter().map(|value| format!("n{value}")));
    let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(Int64Array::from(values.to_vec())), Arc::new(names)];
    let batch = RecordBatch::try_new(Arc::new(schema_to_arrow_schema(&schema)?), columns)?;
    let rolling = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), schema),
        loaded.file_io().clone(),
        DefaultLocationGenerator::new(loaded.metadata())?,
        DefaultFileNameGenerator::new(format!("part-{}", values[0]), None, DataFileFormat::Parquet),
    );
    let mut writer = DataFileWriterBuilder::new(rolling).build(None).await?;
    writer.write(batch).await?;
    let transaction = Transaction::new(loaded);
    transaction.fast_append().add_data_files(writer.close().await?).apply(transaction)?.commit(catalog).await
}

async fn reads(catalog: &RestCatalog, ident: &TableIdent, expected: &[i64]) -> Result<()> {
    let scan = catalog.load_table(ident).await?.scan().select(["id"]).build()?;
    let found = ids(scan.to_arrow().await?.try_collect().await?);
    is(found == expected, found)
}

fn ids(batches: Vec<RecordBatch>) -> Vec<i64> {
    let mut found: Vec<i64> = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    found.sort();
    found
}

fn is(expected: bool, got: impl Debug) -> Result<()> {
    if expected { Ok(()) } else { Err(Error::new(ErrorKind::Unexpected, format!("got {got:?}"))) }
}

async fn attempt<T>(operation: &str, run: impl Future<Output = Result<T>>) {
    say(operation, run.await.err().map(|error| error.to_string()));
}

async fn refused<T: Debug>(operation: &str, expected: ErrorKind, run: impl Future<Output = Result<T>>) {
    say(operation, match run.await {
        Err(error) if error.kind() == expected => None,
        other => Some(format!("expected {expected}, got {other:?}")),
    });
}

fn say(operation: &str, detail: Option<String>) {
    let outcome = if detail.is_none() { "pass" } else { "fail" };
    println!("{}", serde_json::json!({"operation": operation, "outcome": outcome, "detail": detail}));
}
