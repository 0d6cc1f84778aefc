import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Flink SQL with Iceberg's runtime on a REST catalog with OAuth2, in a cluster inside this process. */
public class FlinkIceberg {
    static final String URL = System.getenv("TIDEMILL_ICEBERG_URL");
    static TableEnvironment flink;

    interface Step { void run() throws Exception; }

    static void operation(String name, Step step) {
        try {
            step.run();
            System.out.println("{\"operation\": \"" + name + "\", \"outcome\": \"pass\"}");
        } catch (Throwable error) {
            error.printStackTrace();
            String said = words(error).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            System.out.println("{\"operation\": \"" + name + "\", \"outcome\": \"fail\", \"detail\": \"" + said + "\"}");
        }
    }

    /** What an error and its causes say. */
    static String words(Throwable error) {
        StringBuilder said = new StringBuilder();
        for (Throwable one = error; one != null; one = one.getCause()) said.append(one).append(" / ");
        return said.toString();
    }

    static void check(Object found, Object expected) {
        if (!Objects.equals(found, expected)) throw new AssertionError(found + " is not " + expected);
    }

    static void refused(String statement, String expected) {
        try {
            sql(statement);
        } catch (Exception error) {
            if (!words(error).contains(expected)) throw new AssertionError(expected + " not in " + words(error), error);
            return;
        }
        throw new AssertionError("nothing was refused");
    }

    /** Rows as text, sorted, after the statement has ended. */
    static List<String> sql(String statement) throws Exception {
        TableResult result = flink.executeSql(statement);
        if (statement.startsWith("INSERT")) {
            result.await();
            return List.of();
        }
        List<String> found = new ArrayList<>();
        try (CloseableIterator<Row> rows = result.collect()) {
            rows.forEachRemaining(row -> found.add(row.toString()));
        }
        return found.stream().sorted().collect(Collectors.toList());
    }

    static void use(boolean streaming) {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "1");
        if (streaming) configuration.setString("execution.checkpointing.interval", "1s");
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("rest.bind-address", "127.0.0.1");
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(configuration);
        flink = TableEnvironment.create((streaming ? settings.inStreamingMode() : settings.inBatchMode()).build());
        flink.executeSql(catalog("lake", System.getenv("TIDEMILL_CREDENTIAL")));
        flink.executeSql("USE CATALOG lake");
    }

    static String catalog(String name, String credential) {
        return "CREATE CATALOG " + name + " WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '" + URL
            + "', 'warehouse' = '" + System.getenv("TIDEMILL_WAREHOUSE") + "', 'rest.auth.type' = 'oauth2',"
            + " 'oauth2-server-uri' = '" + URL + "/v1/oauth/tokens', 'credential' = '" + credential + "')";
    }

    public static void main(String[] arguments) {
        operation("create catalog with OAuth2", () -> use(false));
        operation("wrong OAuth2 credential", () -> refused(catalog("stranger", "foreign:wrong"), "NotAuthorized"));
        batch();
        streaming();
        operation("batch read of what was upserted", () -> {
            use(false);
            check(sql("SELECT id, name FROM sales.people"), List.of("+I[1, carl]", "+I[2, bob]", "+I[3, dora]"));
        });
        operation("drop tables and database", () -> {
            refused("DROP DATABASE sales", "not empty");
            for (String table : List.of("orders", "people", "days")) sql("DROP TABLE sales." + table);
            sql("DROP DATABASE sales");
            check(sql("SHOW DATABASES"), List.of());
        });
        System.exit(0);
    }

    static void batch() {
        operation("create database", () -> {
            sql("CREATE DATABASE sales WITH ('team' = 'red')");
            sql("CREATE DATABASE IF NOT EXISTS sales");
            check(sql("SHOW DATABASES").contains("+I[sales]"), true);
        });
        operation("create table", () -> {
            sql("CREATE TABLE sales.orders (id BIGINT COMMENT 'key', amount DECIMAL(9, 2), tags ARRAY<STRING>,"
                + " place ROW<x DOUBLE, y DOUBLE>, at_time TIMESTAMP(6)) COMMENT 'all' WITH ('format-version' = '2')");
            sql("CREATE TABLE sales.days (id BIGINT, the_day STRING) PARTITIONED BY (the_day)");
            sql("CREATE TABLE sales.copied LIKE sales.days");
            refused("CREATE TABLE sales.orders (id BIGINT)", "already exists");
            check(sql("SHOW TABLES IN sales"), List.of("+I[copied]", "+I[days]", "+I[orders]"));
            check(sql("DESCRIBE sales.days").size(), 2);
        });
        operation("insert and batch read", () -> {
            sql("INSERT INTO sales.orders VALUES (1, 10.5, ARRAY['a', 'b'], ROW(1.0, 2.0), TIMESTAMP '2026-01-01 10:00:00'),"
                + " (2, 20, ARRAY['c'], ROW(3.0, 4.0), TIMESTAMP '2026-01-02 10:00:00')");
            check(sql("SELECT id, tags[1], place.y FROM sales.orders"), List.of("+I[1, a, 2.0]", "+I[2, c, 4.0]"));
            check(sql("SELECT SUM(amount) FROM sales.orders"), List.of("+I[30.50]"));
        });
        operation("insert into partitions and overwrite", () -> {
            sql("INSERT INTO sales.days VALUES (1, 'mon'), (2, 'tue')");
            sql("INSERT OVERWRITE sales.days PARTITION (the_day = 'tue') SELECT CAST(20 AS BIGINT)");
            check(sql("SELECT id FROM sales.days WHERE the_day = 'tue'"), List.of("+I[20]"));
            sql("INSERT OVERWRITE sales.copied SELECT * FROM sales.days");
            check(sql("SELECT id FROM sales.copied"), List.of("+I[1]", "+I[20]"));
        });
        operation("metadata tables", () -> {
            check(sql("SELECT operation FROM sales.`orders$snapshots`"), List.of("+I[append]"));
            check(sql("SELECT name, type FROM sales.`orders$refs`"), List.of("+I[main, BRANCH]"));
            check(sql("SELECT record_count FROM sales.`orders$files`"), List.of("+I[2]"));
        });
        operation("time travel", () -> {
            String first = sql("SELECT snapshot_id FROM sales.`orders$snapshots`").get(0).replaceAll("\\D", "");
            sql("INSERT INTO sales.orders (id) VALUES (3)");
            String hint = " /*+ OPTIONS('snapshot-id' = '" + first + "') */";
            check(sql("SELECT id FROM sales.orders" + hint), List.of("+I[1]", "+I[2]"));
            check(sql("SELECT id FROM sales.orders").size(), 3);
        });
        operation("write to a branch", () -> {
            sql("INSERT INTO sales.orders /*+ OPTIONS('branch' = 'main') */ (id) VALUES (4)");
            check(sql("SELECT id FROM sales.orders /*+ OPTIONS('branch' = 'main') */").size(), 4);
        });
        operation("alter and rename table", () -> {
            sql("ALTER TABLE sales.copied SET ('write.format.default' = 'avro')");
            sql("ALTER TABLE sales.copied ADD (note STRING)");
            sql("INSERT INTO sales.copied VALUES (5, 'wed', 'n')");
            check(sql("SELECT note FROM sales.copied WHERE id = 5"), List.of("+I[n]"));
            sql("ALTER TABLE sales.copied RENAME TO sales.moved");
            check(sql("SELECT id FROM sales.moved").size(), 3);
            sql("DROP TABLE sales.moved");
            refused("SELECT * FROM sales.moved", "not found");
        });
    }

    static void streaming() {
        operation("upsert", () -> {
            use(true);
            sql("CREATE TABLE sales.people (id INT, name STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED)"
                + " WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')");
            sql("INSERT INTO sales.people VALUES (1, 'ann'), (2, 'bob')");
            sql("INSERT INTO sales.people VALUES (1, 'carl'), (3, 'dora')");
        });
        operation("streaming read", () -> {
            String options = " /*+ OPTIONS('streaming' = 'true', 'monitor-interval' = '1s',"
                + " 'starting-strategy' = 'TABLE_SCAN_THEN_INCREMENTAL') */";
            List<String> found = new ArrayList<>();
            try (CloseableIterator<Row> rows = flink.executeSql("SELECT id FROM sales.orders" + options).collect()) {
                while (found.size() < 4) found.add(rows.next().toString());
            }
            check(found.stream().sorted().toList(), List.of("+I[1]", "+I[2]", "+I[3]", "+I[4]"));
        });
    }
}
