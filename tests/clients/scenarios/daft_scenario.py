"""Daft on Iceberg tables, through its catalog."""

import daft
from daft.catalog import Catalog
from daft.session import Session
from pyiceberg.catalog import load_catalog
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused


def rows(frame):
    return sorted(tuple(row.values()) for row in frame.to_pylist())


PEOPLE = daft.from_pydict({"id": [1, 2], "name": ["ann", "bob"]})
with operation("connect with OAuth2"):
    iceberg = load_catalog("lake", type="rest", uri=ICEBERG_URL, warehouse=WAREHOUSE, credential=CREDENTIAL)
    catalog = Catalog.from_iceberg(iceberg)
with operation("create namespace"):
    catalog.create_namespace("sales")
    catalog.create_namespace_if_not_exists("sales")
    check(catalog.has_namespace("sales"), True)
    check([str(one) for one in catalog.list_namespaces()], ["sales"])
with operation("create table"):
    table = catalog.create_table("sales.people", PEOPLE.schema())
    check(catalog.has_table("sales.people"), True)
    refused(lambda: catalog.create_table("sales.people", PEOPLE.schema()), "exists")
with operation("append"):
    table.append(PEOPLE)
    check(rows(catalog.read_table("sales.people")), [(1, "ann"), (2, "bob")])
with operation("filter and projection"):
    check(rows(catalog.read_table("sales.people").where(daft.col("id") > 1).select("name")), [("bob",)])
with operation("create table from rows"):
    catalog.create_table("sales.copy", PEOPLE)
    check(rows(catalog.get_table("sales.copy").read()), [(1, "ann"), (2, "bob")])
with operation("overwrite"):
    catalog.get_table("sales.people").overwrite(daft.from_pydict({"id": [9], "name": ["zoe"]}))
    check(rows(catalog.read_table("sales.people")), [(9, "zoe")])
with operation("read and write iceberg"):
    inner = iceberg.load_table("sales.people")
    PEOPLE.write_iceberg(inner, mode="append")
    check(len(rows(daft.read_iceberg(inner))), 3)
with operation("time travel"):
    first = inner.history()[0].snapshot_id
    check(rows(daft.read_iceberg(inner, snapshot_id=first)), [(1, "ann"), (2, "bob")])
with operation("SQL"):
    session = Session()
    session.attach(catalog, alias="lake")
    found = session.sql("SELECT count(*) AS n FROM lake.sales.people")
    check(rows(found), [(3,)])
with operation("list tables"):
    check(sorted(str(one) for one in catalog.list_tables()), ["sales.copy", "sales.people"])
with operation("bad input"):
    refused(lambda: catalog.get_table("sales.nobody"))
    refused(lambda: catalog.drop_namespace("sales"))
with operation("drop table"):
    catalog.drop_table("sales.copy")
    catalog.drop_table("sales.people")
    catalog.drop_namespace("sales")
    check(catalog.list_namespaces(), [])
