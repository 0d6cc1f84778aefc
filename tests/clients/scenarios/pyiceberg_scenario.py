"""pyiceberg on the Iceberg protocol, as its documentation shows."""

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

OPTIONS = {"type": "rest", "uri": ICEBERG_URL, "warehouse": WAREHOUSE}
PEOPLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    identifier_field_ids=[1],
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def people(*rows):
    return pa.table({"id": [one for one, _ in rows], "name": [name for _, name in rows]}, schema=ARROW)


def rows(scanned):
    return sorted(tuple(row.values()) for row in scanned.to_arrow().to_pylist())


with operation("wrong OAuth2 credential"):
    refused(lambda: load_catalog("lake", **OPTIONS, credential="foreign:wrong"), "client")
with operation("no credential"):
    refused(lambda: load_catalog("lake", **OPTIONS).list_namespaces())
with operation("OAuth2 client credentials"):
    catalog = load_catalog("lake", **OPTIONS, credential=CREDENTIAL)
    check(catalog.list_namespaces(), [])

with operation("create namespace"):
    catalog.create_namespace("sales", {"owner": "ann"})
    catalog.create_namespace(("sales", "eu"))
    refused(lambda: catalog.create_namespace("sales"), "NamespaceAlreadyExists")
with operation("list and load namespaces"):
    check(catalog.list_namespaces(), [("sales",)])
    check(catalog.list_namespaces("sales"), [("sales", "eu")])
    check(catalog.load_namespace_properties("sales")["owner"], "ann")
    check(catalog.namespace_exists("nowhere"), False)
with operation("update namespace properties"):
    changed = catalog.update_namespace_properties("sales", {"owner"}, {"team": "red"})
    check((changed.removed, changed.updated), (["owner"], ["team"]))
with operation("drop namespace"):
    catalog.drop_namespace(("sales", "eu"))
    refused(lambda: catalog.drop_namespace("nowhere"), "NoSuchNamespace")

with operation("create table"):
    table = catalog.create_table("sales.people", PEOPLE, properties={"write.format.default": "parquet"})
    refused(lambda: catalog.create_table("sales.people", PEOPLE), "TableAlreadyExists")
    check(catalog.table_exists("sales.people"), True)
with operation("append"):
    table.append(people((1, "ann"), (2, "bob")))
    check(rows(table.scan()), [(1, "ann"), (2, "bob")])
with operation("upsert"):
    changed = table.upsert(people((2, "rob"), (3, "cy")))
    check((changed.rows_updated, changed.rows_inserted), (1, 1))
    check(rows(table.scan()), [(1, "ann"), (2, "rob"), (3, "cy")])
with operation("delete rows"):
    table.delete(EqualTo("id", 3))
    check(rows(catalog.load_table("sales.people").scan()), [(1, "ann"), (2, "rob")])
with operation("overwrite"):
    table.overwrite(people((9, "zoe")), overwrite_filter="id = 2")
    check(rows(table.scan()), [(1, "ann"), (9, "zoe")])
with operation("time travel"):
    first = table.history()[0].snapshot_id
    check(rows(table.scan(snapshot_id=first)), [(1, "ann"), (2, "bob")])
with operation("tags and branches"):
    table.manage_snapshots().create_tag(first, "v1").create_branch(first, "dev").commit()
    table.append(people((4, "dan")), branch="dev")
    check(rows(table.scan().use_ref("v1")), [(1, "ann"), (2, "bob")])
    check(rows(table.scan().use_ref("dev")), [(1, "ann"), (2, "bob"), (4, "dan")])
    check(len(rows(table.scan())), 2)
    table.manage_snapshots().remove_tag("v1").remove_branch("dev").commit()
    check(set(table.metadata.refs), {"main"})
with operation("schema evolution"):
    with table.update_schema() as update:
        update.add_column("age", IntegerType(), doc="in years")
        update.rename_column("name", "full_name")
    with table.update_schema() as update:
        update.update_column("age", LongType())
    check(
        [field.name for field in catalog.load_table("sales.people").schema().fields],
        ["id", "full_name", "age"],
    )
    check(len(rows(table.scan())), 2)
    with table.update_schema() as update:
        update.delete_column("age")
with operation("partition evolution"):
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    check([field.name for field in catalog.load_table("sales.people").spec().fields], ["id_bucket"])
with operation("sort order"):
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    check(len(catalog.load_table("sales.people").sort_order().fields), 1)
with operation("table properties in a transaction"):
    with table.transaction() as transaction:
        transaction.set_properties(owner="bob", note="x")
        transaction.remove_properties("note")
    check(catalog.load_table("sales.people").properties["owner"], "bob")
with operation("partitioned table"):
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    parted = catalog.create_table("sales.parted", PEOPLE, partition_spec=spec)
    parted.append(people((1, "ann"), (2, "bob")))
    check(rows(parted.scan(row_filter="id = 2")), [(2, "bob")])
    check(parted.inspect.partitions().num_rows, 2)
with operation("create table in a transaction"):
    schema = Schema(NestedField(1, "x", DoubleType()))
    with catalog.create_table_transaction("sales.staged", schema) as transaction:
        transaction.set_properties(kind="staged")
    check(catalog.load_table("sales.staged").properties["kind"], "staged")
with operation("concurrent appends"):
    stale = catalog.load_table("sales.people")
    table.append(people((20, "eve")).rename_columns(["id", "full_name"]))
    stale.append(people((21, "fay")).rename_columns(["id", "full_name"]))
    check([row[0] for row in rows(table.refresh().scan())], [1, 9, 20, 21])
with operation("rename table"):
    catalog.rename_table("sales.staged", "sales.renamed")
    check(catalog.table_exists("sales.staged"), False)
    refused(lambda: catalog.rename_table("sales.staged", "sales.other"), "NoSuchTable")
with operation("register table"):
    place = catalog.load_table("sales.renamed").metadata_location
    catalog.drop_table("sales.renamed")
    check(catalog.register_table("sales.again", place).properties["kind"], "staged")
with operation("list tables"):
    check(
        sorted(catalog.list_tables("sales")), [("sales", "again"), ("sales", "parted"), ("sales", "people")]
    )
with operation("views"):
    check(catalog.list_views("sales"), [])
    check(catalog.view_exists("sales.nothing"), False)
with operation("drop and purge table"):
    catalog.purge_table("sales.again")
    catalog.drop_table("sales.parted")
    refused(lambda: catalog.load_table("sales.parted"), "NoSuchTable")
with operation("a namespace with tables is not dropped"):
    refused(lambda: catalog.drop_namespace("sales"), "NotEmpty")
