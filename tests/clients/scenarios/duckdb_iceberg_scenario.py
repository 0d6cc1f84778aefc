"""DuckDB with its iceberg extension: the catalog attached as a database."""

import duckdb
from duckdb_extensions import import_extension
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

db = duckdb.connect()
identity, secret = CREDENTIAL.split(":")


def rows(query):
    return sorted(db.execute(query).fetchall())


def attach(name, given):
    db.execute(
        f"CREATE OR REPLACE SECRET {name}_secret (TYPE iceberg, CLIENT_ID '{identity}', "
        f"CLIENT_SECRET '{given}', OAUTH2_SERVER_URI '{ICEBERG_URL}/v1/oauth/tokens')"
    )
    db.execute(
        f"ATTACH '{WAREHOUSE}' AS {name} (TYPE iceberg, ENDPOINT '{ICEBERG_URL}', SECRET {name}_secret)"
    )


with operation("load extension"):
    for extension in ("httpfs", "avro", "iceberg"):
        import_extension(extension, con=db)
        db.execute(f"LOAD {extension}")
with operation("wrong OAuth2 credential"):
    refused(lambda: attach("nobody", "wrong"), "401")
with operation("attach with OAuth2"):
    attach("ice", secret)
with operation("create schema"):
    db.execute("CREATE SCHEMA ice.sales")
    db.execute("CREATE SCHEMA IF NOT EXISTS ice.sales")
    refused(lambda: db.execute("CREATE SCHEMA ice.sales"), "exists")
    db.execute("CREATE SCHEMA ice.empty")
    db.execute("DROP SCHEMA ice.empty")
with operation("create table"):
    db.execute("CREATE TABLE ice.sales.people (id BIGINT, name VARCHAR)")
    refused(lambda: db.execute("CREATE TABLE ice.sales.people (id BIGINT)"))
with operation("insert"):
    db.execute("INSERT INTO ice.sales.people VALUES (1, 'ann'), (2, 'bob')")
    check(rows("FROM ice.sales.people"), [(1, "ann"), (2, "bob")])
with operation("create table as"):
    db.execute("CREATE TABLE ice.sales.squares AS SELECT range AS id, range * range AS n FROM range(4)")
    check(rows("FROM ice.sales.squares WHERE id > 2"), [(3, 9)])
with operation("update and delete"):
    db.execute("UPDATE ice.sales.people SET name = 'rob' WHERE id = 2")
    db.execute("INSERT INTO ice.sales.people VALUES (3, 'cy')")
    db.execute("DELETE FROM ice.sales.people WHERE id = 3")
    check(rows("FROM ice.sales.people"), [(1, "ann"), (2, "rob")])
with operation("merge"):
    db.execute(
        "MERGE INTO ice.sales.people AS old USING (VALUES (2, 'bo'), (4, 'di')) AS new(id, name) "
        "ON old.id = new.id WHEN MATCHED THEN UPDATE SET name = new.name "
        "WHEN NOT MATCHED THEN INSERT VALUES (new.id, new.name)"
    )
    check(rows("FROM ice.sales.people"), [(1, "ann"), (2, "bo"), (4, "di")])
with operation("time travel"):
    snapshots = "SELECT snapshot_id FROM iceberg_snapshots(ice.sales.people) ORDER BY sequence_number"
    first = db.execute(snapshots).fetchone()[0]
    check(rows(f"FROM ice.sales.people AT (VERSION => {first})"), [(1, "ann"), (2, "bob")])
with operation("transaction over two tables"):
    db.execute("BEGIN")
    db.execute("DELETE FROM ice.sales.people WHERE id = 4")
    db.execute("INSERT INTO ice.sales.squares VALUES (9, 81)")
    db.execute("COMMIT")
    check(rows("SELECT max(id) FROM ice.sales.people"), [(2,)])
    check(rows("SELECT max(id) FROM ice.sales.squares"), [(9,)])
with operation("rollback"):
    db.execute("BEGIN")
    db.execute("INSERT INTO ice.sales.people VALUES (7, 'x')")
    db.execute("ROLLBACK")
    check(len(rows("FROM ice.sales.people")), 2)
with operation("schema evolution"):
    db.execute("ALTER TABLE ice.sales.people ADD COLUMN age INTEGER")
    db.execute("ALTER TABLE ice.sales.people RENAME COLUMN name TO full_name")
    check(rows("SELECT id, full_name, age FROM ice.sales.people"), [(1, "ann", None), (2, "bo", None)])
with operation("rename table"):
    db.execute("ALTER TABLE ice.sales.squares RENAME TO numbers")
    check(rows("SELECT count(*) FROM ice.sales.numbers"), [(5,)])
with operation("list tables"):
    found = rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'ice'")
    assert ("people",) in found, found
with operation("bad input"):
    refused(lambda: db.execute("FROM ice.sales.nobody"), "nobody")
    refused(lambda: db.execute("DROP SCHEMA ice.sales"))
with operation("drop table"):
    db.execute("DROP TABLE ice.sales.people")
    refused(lambda: db.execute("FROM ice.sales.people"), "people")
