"""Trino with the Iceberg connector on a REST catalog, as its manual configures it: a server of one node."""

import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import trino
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

JAVA, SERVER = sys.argv[1:3]
START_SECONDS = 240
CONFIG = """coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
plugin.dir={server}/plugin
catalog.config-dir={home}/etc/catalog
web-ui.enabled=false
node.environment=clients
node.internal-address=127.0.0.1
"""
CATALOG = f"""connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={ICEBERG_URL}
iceberg.rest-catalog.warehouse={WAREHOUSE}
iceberg.rest-catalog.security=OAUTH2
iceberg.rest-catalog.oauth2.credential={{credential}}
iceberg.rest-catalog.oauth2.server-uri={ICEBERG_URL}/v1/oauth/tokens
fs.hadoop.enabled=true
iceberg.register-table-procedure.enabled=true
"""
# Those of the manual's jvm.config that Java does not have by itself.
JVM = (
    "-Xmx2G",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dfile.encoding=UTF-8",
    "-XX:+EnableDynamicAgentLoading",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)


@contextmanager
def running_trino(home):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / "etc" / "catalog").mkdir(parents=True)
    config = home / "etc" / "config.properties"
    config.write_text(CONFIG.format(port=port, server=SERVER, home=home))
    for name, credential in (("lake", CREDENTIAL), ("stranger", f"{CREDENTIAL}x")):
        (home / "etc" / "catalog" / f"{name}.properties").write_text(CATALOG.format(credential=credential))
    command = [JAVA, *JVM, f"-Dconfig={config}", "-cp", f"{SERVER}/lib/*", "io.trino.server.TrinoServer"]
    process = subprocess.Popen(command, cwd=home, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield connected(process, port)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def connected(process, port):
    """A cursor, once the server has started."""
    until = time.monotonic() + START_SECONDS
    while True:
        cursor = trino.dbapi.connect(host="127.0.0.1", port=port, user="ann", catalog="lake").cursor()
        try:
            cursor.execute("SELECT node_id FROM system.runtime.nodes").fetchall()
            return cursor
        except Exception:  # refused, not ready, no node yet
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(1)


def main(cursor):
    def sql(statement):
        return [tuple(row) for row in cursor.execute(statement).fetchall()]

    def fails(statement, *words):
        refused(lambda: sql(statement), *words)

    with operation("wrong OAuth2 credential"):
        fails("SHOW SCHEMAS FROM stranger", "")
    with operation("create schema"):
        sql("CREATE SCHEMA sales")
        sql("CREATE SCHEMA IF NOT EXISTS sales")
        fails("CREATE SCHEMA sales", "already exists")
        check(sql("SHOW SCHEMAS LIKE 'sales'"), [("sales",)])
    with operation("create table"):
        sql("CREATE TABLE sales.orders (id bigint NOT NULL, day date, amount decimal(9,2), note varchar)")
        check(sql("SHOW TABLES FROM sales"), [("orders",)])
        fails("CREATE TABLE sales.orders (id bigint)", "already exists")
    with operation("create partitioned table with comment"):
        sql(
            "CREATE TABLE sales.events (id bigint, at timestamp(6) with time zone,"
            " kind varchar COMMENT 'of it', tags array(varchar), place row(x double, y double))"
            " COMMENT 'what happened' WITH (partitioning = ARRAY['day(at)', 'bucket(id, 4)'], "
            " sorted_by = ARRAY['id'], format = 'PARQUET', format_version = 2)"
        )
        shown = sql("SHOW CREATE TABLE sales.events")[0][0]
        check([word in shown for word in ("day(at)", "what happened", "location")], [True, True, True])
    with operation("insert"):
        sql(
            "INSERT INTO sales.orders VALUES (1, DATE '2026-01-01', 10.50, 'first'),"
            " (2, DATE '2026-01-02', 20, NULL), (3, DATE '2026-02-01', 30, 'third')"
        )
        check(sql("SELECT count(*), sum(id), max(note) FROM sales.orders"), [(3, 6, "third")])
        sql(
            "INSERT INTO sales.events VALUES"
            " (1, TIMESTAMP '2026-01-01 10:00:00 UTC', 'click', ARRAY['a', 'b'], ROW(1, 2)),"
            " (2, TIMESTAMP '2026-01-02 10:00:00 UTC', 'view', ARRAY[], NULL)"
        )
        check(sql("SELECT id, tags[1], place.y FROM sales.events WHERE kind = 'click'"), [(1, "a", 2.0)])
    with operation("create table as select"):
        sql("CREATE TABLE sales.copied AS SELECT id, note FROM sales.orders WHERE id < 3")
        check(sql("SELECT id, note FROM sales.copied ORDER BY id"), [(1, "first"), (2, None)])
        sql("CREATE TABLE sales.empty AS SELECT * FROM sales.orders WITH NO DATA")
        check(sql("SELECT count(*) FROM sales.empty"), [(0,)])
    with operation("create or replace table"):
        sql("CREATE OR REPLACE TABLE sales.copied AS SELECT id * 10 AS id FROM sales.orders")
        check(sql("SELECT id FROM sales.copied ORDER BY 1"), [(10,), (20,), (30,)])
    with operation("update"):
        sql("UPDATE sales.orders SET note = 'second', amount = amount + 1 WHERE id = 2")
        check(sql("SELECT note, CAST(amount AS double) FROM sales.orders WHERE id = 2"), [("second", 21.0)])
    with operation("delete"):
        sql("DELETE FROM sales.orders WHERE id = 3")
        check(sql("SELECT id FROM sales.orders ORDER BY id"), [(1,), (2,)])
    with operation("merge"):
        sql(
            "MERGE INTO sales.orders o USING (VALUES (2, 'merged'), (4, 'new')) AS s(id, note) ON o.id = s.id"
            " WHEN MATCHED THEN UPDATE SET note = s.note"
            " WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, s.note)"
        )
        found = sql("SELECT id, note FROM sales.orders ORDER BY id")
        check(found, [(1, "first"), (2, "merged"), (4, "new")])
    with operation("alter table: columns"):
        sql("ALTER TABLE sales.orders ADD COLUMN qty integer")
        sql("ALTER TABLE sales.orders RENAME COLUMN note TO remark")
        sql("ALTER TABLE sales.orders DROP COLUMN day")
        sql("ALTER TABLE sales.orders ALTER COLUMN qty SET DATA TYPE bigint")
        sql("ALTER TABLE sales.orders ALTER COLUMN id DROP NOT NULL")
        sql("COMMENT ON COLUMN sales.orders.qty IS 'pieces'")
        columns = [(name, kind, comment) for name, kind, _, comment in sql("DESCRIBE sales.orders")]
        expected = [("id", "bigint", ""), ("amount", "decimal(9,2)", ""), ("remark", "varchar", "")]
        check(columns, [*expected, ("qty", "bigint", "pieces")])
        check(sql("SELECT remark, qty FROM sales.orders WHERE id = 1"), [("first", None)])
    with operation("alter table: properties and partitioning"):
        sql("ALTER TABLE sales.orders SET PROPERTIES partitioning = ARRAY['bucket(id, 2)']")
        sql("INSERT INTO sales.orders (id, qty) VALUES (5, 7)")
        check(sql("SELECT qty FROM sales.orders WHERE id = 5"), [(7,)])
        properties = dict(sql('SELECT key, value FROM sales."orders$properties"'))
        check(properties["write.format.default"], "PARQUET")
    with operation("metadata tables"):
        assert len(sql('SELECT * FROM sales."orders$snapshots"')) >= 5
        assert len(sql('SELECT * FROM sales."orders$history"')) >= 5
        assert sql('SELECT file_path FROM sales."orders$files"')
        check(sql('SELECT name, type FROM sales."orders$refs"'), [("main", "BRANCH")])
        check(len(sql('SELECT partition FROM sales."events$partitions"')), 2)
    with operation("time travel"):
        ids = [
            one for (one,) in sql('SELECT snapshot_id FROM sales."copied$snapshots" ORDER BY committed_at')
        ]
        # The oldest snapshots of a replaced table are another schema's.
        check(sql(f"SELECT count(*) FROM sales.copied FOR VERSION AS OF {ids[0]}"), [(2,)])
        check(sql("SELECT count(*) FROM sales.copied FOR TIMESTAMP AS OF current_timestamp"), [(3,)])
    with operation("roll back and maintain"):
        sql("INSERT INTO sales.copied VALUES 99")
        newest = sql('SELECT snapshot_id FROM sales."copied$snapshots" ORDER BY committed_at DESC')
        sql(f"ALTER TABLE sales.copied EXECUTE rollback_to_snapshot({newest[1][0]})")
        check(sql("SELECT max(id) FROM sales.copied"), [(30,)])
        sql("ALTER TABLE sales.orders EXECUTE optimize")
        sql("ANALYZE sales.orders")
        check(sql("SELECT count(*) FROM sales.orders"), [(4,)])
        assert any(row[0] == "id" and row[2] == 4.0 for row in sql("SHOW STATS FOR sales.orders"))
    with operation("views"):
        sql("CREATE VIEW sales.notes COMMENT 'short' AS SELECT id, remark FROM sales.orders WHERE id < 3")
        check(sql("SELECT * FROM sales.notes ORDER BY id"), [(1, "first"), (2, "merged")])
        fails("CREATE VIEW sales.notes AS SELECT 1 AS one", "already exists")
        sql("CREATE OR REPLACE VIEW sales.notes AS SELECT count(*) AS n FROM sales.orders")
        check(sql("SELECT n FROM sales.notes"), [(4,)])
        assert "count(*)" in sql("SHOW CREATE VIEW sales.notes")[0][0]
        check(
            sql("SELECT table_name FROM information_schema.views WHERE table_schema = 'sales'"), [("notes",)]
        )
        sql("ALTER VIEW sales.notes RENAME TO sales.counted")
        sql("DROP VIEW sales.counted")
        fails("SELECT * FROM sales.counted", "does not exist")
    with operation("information schema"):
        found = sql(
            "SELECT table_name, count(*) FROM information_schema.columns"
            " WHERE table_schema = 'sales' AND table_name IN ('copied', 'events') GROUP BY 1 ORDER BY 1"
        )
        check(found, [("copied", 1), ("events", 5)])
    with operation("rename table"):
        sql("ALTER TABLE sales.copied RENAME TO sales.tens")
        check(sql("SELECT max(id) FROM sales.tens"), [(30,)])
        fails("SELECT * FROM sales.copied", "does not exist")
        fails("ALTER TABLE sales.tens RENAME TO sales.orders", "already exists")
    with operation("truncate and drop table"):
        # Not the table that was rolled back: that rollback has the time of a replay, later than this commit.
        sql("CREATE TABLE sales.short AS SELECT 1 AS id")
        sql("TRUNCATE TABLE sales.short")
        check(sql("SELECT count(*) FROM sales.short"), [(0,)])
        sql("DROP TABLE sales.tens")
        fails("SELECT * FROM sales.tens", "does not exist")
    with operation("register and unregister table"):
        location = sql('SELECT file FROM sales."empty$metadata_log_entries" ORDER BY timestamp DESC')[0][0]
        sql("CALL lake.system.unregister_table('sales', 'empty')")
        folder = location.rpartition("/metadata/")[0]
        sql(f"CALL lake.system.register_table('sales', 'empty', '{folder}')")
        check(sql("SELECT count(*) FROM sales.empty"), [(0,)])
    with operation("drop schema"):
        fails("DROP SCHEMA sales", "")
        sql("DROP SCHEMA sales CASCADE")
        check(sql("SHOW SCHEMAS LIKE 'sales'"), [])


with tempfile.TemporaryDirectory(prefix="trino-") as folder, running_trino(Path(folder)) as opened:
    main(opened)
