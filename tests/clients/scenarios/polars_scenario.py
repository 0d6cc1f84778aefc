"""polars on Iceberg tables of a pyiceberg catalog, as its documentation shows."""

import polars as pl
from pyiceberg.catalog import load_catalog
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

PEOPLE = pl.DataFrame({"id": [1, 2], "name": ["ann", "bob"]})


def rows(frame):
    return sorted(frame.collect().rows())


with operation("connect with OAuth2"):
    catalog = load_catalog("lake", type="rest", uri=ICEBERG_URL, warehouse=WAREHOUSE, credential=CREDENTIAL)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.people", PEOPLE.to_arrow().schema)
with operation("append"):
    PEOPLE.write_iceberg(table, mode="append")
    check(rows(pl.scan_iceberg(table)), [(1, "ann"), (2, "bob")])
with operation("append again"):
    pl.DataFrame({"id": [3], "name": ["cy"]}).write_iceberg(table, mode="append")
    check(len(rows(pl.scan_iceberg(catalog.load_table("sales.people")))), 3)
with operation("filter and projection"):
    found = pl.scan_iceberg(table).filter(pl.col("id") > 1).select("name")
    check(rows(found), [("bob",), ("cy",)])
with operation("time travel"):
    first = table.history()[0].snapshot_id
    check(rows(pl.scan_iceberg(table, snapshot_id=first)), [(1, "ann"), (2, "bob")])
with operation("native reader"):
    check(len(rows(pl.scan_iceberg(table, reader_override="native"))), 3)
with operation("pyiceberg reader"):
    check(len(rows(pl.scan_iceberg(table, reader_override="pyiceberg"))), 3)
with operation("overwrite"):
    pl.DataFrame({"id": [9], "name": ["zoe"]}).write_iceberg(table, mode="overwrite")
    check(rows(pl.scan_iceberg(table)), [(9, "zoe")])
with operation("sink"):
    PEOPLE.lazy().sink_iceberg(table, mode="append")
    check(len(rows(pl.scan_iceberg(catalog.load_table("sales.people")))), 3)
with operation("evolved schema"):
    with table.update_schema() as update:
        update.rename_column("name", "full_name")
    found = pl.scan_iceberg(catalog.load_table("sales.people")).filter(pl.col("id") == 9)
    check((found.collect().columns, rows(found)), (["id", "full_name"], [(9, "zoe")]))
with operation("deleted rows"):
    table.refresh().delete("id = 9")
    check([row[0] for row in rows(pl.scan_iceberg(table))], [1, 2])
with operation("bad input"):
    refused(lambda: pl.DataFrame({"other": [1]}).write_iceberg(table, mode="append"))
    refused(lambda: rows(pl.scan_iceberg(table, snapshot_id=1)), "snapshot")
