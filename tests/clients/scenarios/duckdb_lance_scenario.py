"""DuckDB with its lance extension: a REST namespace attached as a database."""

import contextlib
import os
import urllib.request

import duckdb
from duckdb_extensions import import_extension
from trying import CREDENTIAL, URL, check, operation, refused

db = duckdb.connect()


def rows(query):
    return sorted(db.execute(query).fetchall())


def attach(name="lake", key=CREDENTIAL):
    db.execute(f"ATTACH '$' AS {name} (TYPE lance, ENDPOINT '{URL}', API_KEY '{key}')")
    return rows(f"SHOW TABLES FROM {name}.main")


def attach_again():
    db.execute("DETACH lake")
    return attach()


with operation("load extension"):
    for extension in ("httpfs", "lance"):
        import_extension(extension, con=db)
        db.execute(f"LOAD {extension}")
with operation("wrong API key"):
    refused(lambda: attach("nobody", "foreign:wrong"), "credential is not valid")
with operation("attach"):
    check(attach(), [])
with operation("create table"):
    db.execute("CREATE TABLE lake.main.people (id BIGINT, name VARCHAR)")
    check(attach_again(), [("people",)])
with operation("insert"):
    db.execute("INSERT INTO lake.main.people VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')")
    check(rows("FROM lake.main.people WHERE id > 1"), [(2, "bob"), (3, "cy")])
with operation("projection, filter and limit"):
    check(rows("SELECT name FROM lake.main.people WHERE name LIKE 'b%'"), [("bob",)])
    check(len(rows("FROM lake.main.people LIMIT 2 OFFSET 1")), 2)
    check(rows("SELECT count(*), max(id) FROM lake.main.people"), [(3, 3)])
with operation("update"):
    db.execute("UPDATE lake.main.people SET name = 'zoe' WHERE id = 1")
    check(rows("SELECT name FROM lake.main.people WHERE id = 1"), [("zoe",)])
with operation("delete"):
    db.execute("DELETE FROM lake.main.people WHERE id = 3")
    check(rows("SELECT id FROM lake.main.people"), [(1,), (2,)])
with operation("merge"):
    db.execute(
        "MERGE INTO lake.main.people AS old USING (VALUES (2::BIGINT, 'rob'), (4, 'dan')) AS new(id, name) "
        "ON old.id = new.id WHEN MATCHED THEN UPDATE SET name = new.name "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (new.id, new.name)"
    )
    check(rows("SELECT id, name FROM lake.main.people WHERE id > 1"), [(2, "rob"), (4, "dan")])
with operation("add column"):
    db.execute("ALTER TABLE lake.main.people ADD COLUMN note VARCHAR")
    check(rows("SELECT id, note FROM lake.main.people WHERE id = 2"), [(2, None)])
with operation("rename column"):
    db.execute("ALTER TABLE lake.main.people RENAME COLUMN name TO full_name")
    check(rows("SELECT full_name FROM lake.main.people WHERE id = 2"), [("rob",)])
with operation("vector search"):
    db.execute("CREATE TABLE lake.main.points (id BIGINT, v FLOAT[2])")
    attach_again()
    db.execute("INSERT INTO lake.main.points VALUES (1, [1, 0]), (2, [2, 0])")
    found = rows("SELECT id FROM lance_vector_search('lake.main.points', 'v', [2, 0]::FLOAT[2], k = 1)")
    check(found, [(2,)])
with operation("truncate"):
    db.execute("TRUNCATE TABLE lake.main.points")
    check(rows("FROM lake.main.points"), [])
with operation("create table as"):
    db.execute("CREATE TABLE lake.main.numbers AS SELECT range AS id FROM range(3)")
    attach_again()
    check(rows("FROM lake.main.numbers"), [(0,), (1,), (2,)])
with operation("a table is there as soon as it is created"):
    db.execute("CREATE TABLE lake.main.fresh AS SELECT 7::BIGINT AS id")
    check(rows("FROM lake.main.fresh"), [(7,)])
with operation("tables of a namespace below the root"):
    # This client cannot make one.
    headers = {"x-api-key": CREDENTIAL, "content-type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/namespace/sales/create", b"{}", headers)
    urllib.request.urlopen(request).read()
    for _ in range(2):
        db.execute(f"ATTACH 'sales' AS sales (TYPE lance, ENDPOINT '{URL}', API_KEY '{CREDENTIAL}')")
        if not rows("SHOW TABLES FROM sales.main"):
            db.execute("CREATE TABLE sales.main.orders (id BIGINT)")
            db.execute("DETACH sales")
    db.execute("INSERT INTO sales.main.orders VALUES (1)")
    check(rows("FROM sales.main.orders"), [(1,)])
with operation("drop a table below the root"):
    db.execute("DETACH sales")
    db.execute(f"ATTACH 'sales' AS sales (TYPE lance, ENDPOINT '{URL}', API_KEY '{CREDENTIAL}')")
    db.execute("DROP TABLE sales.main.orders")
with operation("create table as, before anything else is asked of the namespace"):
    db.execute("DETACH lake")
    db.execute(f"ATTACH '$' AS lake (TYPE lance, ENDPOINT '{URL}', API_KEY '{CREDENTIAL}')")
    db.execute("CREATE TABLE lake.main.first AS SELECT 7::BIGINT AS id")
    attach_again()
    check(rows("FROM lake.main.first"), [(7,)])
with operation("add column with a default"):
    attach_again()
    db.execute("ALTER TABLE lake.main.people ADD COLUMN twice BIGINT DEFAULT (id * 2)")
with operation("bad input"):
    with contextlib.suppress(duckdb.Error):
        db.execute("ROLLBACK")
    attach_again()
    refused(lambda: db.execute("FROM lake.main.nobody"), "nobody")
    refused(lambda: db.execute("CREATE TABLE lake.main.people (id BIGINT)"), "exist")
with operation("drop table"):
    db.execute("DROP TABLE lake.main.points")
    assert ("points",) not in attach_again()
# Its threads may outlive the interpreter.
os._exit(0)
