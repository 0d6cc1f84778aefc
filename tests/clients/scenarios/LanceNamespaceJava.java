import java.io.ByteArrayOutputStream;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import org.apache.arrow.vector.util.Text;
import org.lance.namespace.client.apache.ApiClient;
import org.lance.namespace.client.apache.ApiException;
import org.lance.namespace.client.apache.api.*;
import org.lance.namespace.model.*;

/** The generated Java client of the Lance Namespace specification, with an API key. */
public class LanceNamespaceJava {
    static final RootAllocator MEMORY = new RootAllocator();
    static final Schema SCHEMA = new Schema(List.of(
        Field.nullable("id", new ArrowType.Int(64, true)),
        Field.nullable("name", new ArrowType.Utf8()),
        new Field("vector", FieldType.nullable(new ArrowType.FixedSizeList(2)),
            List.of(Field.nullable("item", new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE))))));
    static final String USERS = "shop$users";

    interface Step { void run() throws Exception; }

    static void operation(String name, Step step) {
        try {
            step.run();
            System.out.println("{\"operation\": \"" + name + "\", \"outcome\": \"pass\"}");
        } catch (Throwable error) {
            error.printStackTrace();
            String said = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            System.out.println("{\"operation\": \"" + name + "\", \"outcome\": \"fail\", \"detail\": \"" + said + "\"}");
        }
    }

    static void check(Object found, Object expected) {
        if (!Objects.equals(found, expected)) throw new AssertionError(found + " is not " + expected);
    }

    /** The action fails with the status and with the code of the specification's error model, if one is given. */
    static void refused(int status, Integer code, Callable<?> action) throws Exception {
        try {
            action.call();
        } catch (ApiException error) {
            check(error.getCode(), status);
            if (code != null && !error.getResponseBody().replace(" ", "").contains("\"code\":" + code)) {
                throw new AssertionError(error.getResponseBody() + " has not code " + code);
            }
            return;
        }
        throw new AssertionError("nothing was refused");
    }

    static byte[] rows(long... ids) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, MEMORY);
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(bytes))) {
            FixedSizeListVector vectors = (FixedSizeListVector) root.getVector("vector");
            Float4Vector items = (Float4Vector) vectors.getDataVector();
            root.allocateNew();
            for (int row = 0; row < ids.length; row++) {
                ((BigIntVector) root.getVector("id")).setSafe(row, ids[row]);
                ((VarCharVector) root.getVector("name")).setSafe(row, new Text("user " + ids[row]));
                vectors.setNotNull(row);
                items.setSafe(row * 2, ids[row]);
                items.setSafe(row * 2 + 1, 1);
            }
            root.setRowCount(ids.length);
            writer.start();
            writer.writeBatch();
            writer.end();
        }
        return bytes.toByteArray();
    }

    /** One column of an answer, which is a file in Arrow's IPC format. */
    static List<Object> column(byte[] answer, String name) throws Exception {
        List<Object> found = new ArrayList<>();
        try (ArrowFileReader reader = new ArrowFileReader(new ByteArrayReadableSeekableByteChannel(answer), MEMORY)) {
            while (reader.loadNextBatch()) {
                var vector = reader.getVectorSchemaRoot().getVector(name);
                for (int row = 0; row < vector.getValueCount(); row++) {
                    Object value = vector.getObject(row);
                    found.add(value instanceof Text ? value.toString() : value);
                }
            }
        }
        return found;
    }

    static QueryTableRequest query(int k) {
        return new QueryTableRequest().k(k).vector(new QueryTableRequestVector());
    }

    static long rowsOf(TableApi tables, String table) throws ApiException {
        return tables.countTableRows(table, new CountTableRowsRequest(), "$");
    }

    static ApiClient client(String key) {
        ApiClient client = new ApiClient();
        client.setBasePath(System.getenv("TIDEMILL_URL"));
        client.setApiKey(key);
        return client;
    }

    public static void main(String[] arguments) {
        ApiClient client = client(System.getenv("TIDEMILL_CREDENTIAL"));
        operation("wrong API key", () -> refused(401, null, () ->
            new NamespaceApi(client("foreign:wrong")).listNamespaces("$", "$", null, null)));
        namespaces(new NamespaceApi(client));
        tables(new TableApi(client), new DataApi(client));
        columns(new TableApi(client));
        versions(new TableApi(client), new TagApi(client), new TransactionApi(client));
        indexes(new IndexApi(client), new TableApi(client));
        views(new MaterializedViewApi(client), new TableApi(client));
        ends(new TableApi(client), new NamespaceApi(client));
    }

    static void namespaces(NamespaceApi namespaces) {
        operation("create, list and describe namespaces", () -> {
            namespaces.createNamespace("shop", new CreateNamespaceRequest().properties(Map.of("owner", "ann")), "$");
            namespaces.createNamespace("shop.eu", new CreateNamespaceRequest().mode("Create"), ".");
            namespaces.createNamespace("shop", new CreateNamespaceRequest().mode("ExistOk"), "$");
            refused(409, 2, () -> namespaces.createNamespace("shop", new CreateNamespaceRequest(), "$"));
            check(namespaces.listNamespaces("$", "$", null, null).getNamespaces(), java.util.Set.of("shop"));
            check(namespaces.listNamespaces("shop", "$", null, 10).getNamespaces(), java.util.Set.of("eu"));
            var described = namespaces.describeNamespace("shop", new DescribeNamespaceRequest(), "$");
            check(described.getProperties().get("owner"), "ann");
            namespaces.namespaceExists("shop$eu", new NamespaceExistsRequest(), "$");
            refused(404, 1, () -> namespaces.describeNamespace("none", new DescribeNamespaceRequest(), "$"));
        });
    }

    static void tables(TableApi tables, DataApi data) {
        operation("create table", () -> {
            check(tables.createTable(USERS, rows(1, 2, 3), "$", null, null, null).getVersion(), 1L);
            refused(409, 5, () -> tables.createTable(USERS, rows(1), "$", "create", null, null));
            check(tables.listTables("shop", "$", null, null, null).getTables(), java.util.Set.of("users"));
            check(tables.listAllTables("$", null, null, null).getTables().size(), 1);
        });
        operation("describe table", () -> {
            var described = tables.describeTable(USERS, new DescribeTableRequest().loadDetailedMetadata(true), "$", null, null, null);
            check(described.getSchema().getFields().stream().map(JsonArrowField::getName).toList(), List.of("id", "name", "vector"));
            check(described.getLocation() != null, true);
            tables.tableExists(USERS, new TableExistsRequest(), "$");
            refused(404, 4, () -> tables.describeTable("shop$none", new DescribeTableRequest(), "$", null, null, null));
        });
        operation("insert and count", () -> {
            tables.insertIntoTable(USERS, rows(4, 5), "$", "append");
            check(rowsOf(tables, USERS), 5L);
            check(data.countTableRows(USERS, new CountTableRowsRequest().predicate("id > 3"), "$"), 2L);
            check(data.countTableRows(USERS, new CountTableRowsRequest().version(1L), "$"), 3L);
        });
        operation("merge insert", () -> {
            var merged = tables.mergeInsertIntoTable(USERS, "id", rows(5, 6), "$", true, null, true, null, null, null, null);
            check(List.of(merged.getNumUpdatedRows(), merged.getNumInsertedRows()), List.of(1L, 1L));
        });
        operation("update and delete", () -> {
            var updated = tables.updateTable(USERS, new UpdateTableRequest().predicate("id = 2").updates(List.of(List.of("name", "'bob'"))), "$");
            check(updated.getUpdatedRows(), 1L);
            tables.deleteFromTable(USERS, new DeleteFromTableRequest().predicate("id = 6"), "$");
            check(rowsOf(tables, USERS), 5L);
        });
        operation("query: filter and columns", () -> {
            var request = query(10).filter("id <= 2").columns(new QueryTableRequestColumns().columnNames(List.of("id", "name")));
            byte[] answer = data.queryTable(USERS, request, "$");
            check(column(answer, "name").stream().sorted().toList(), List.of("bob", "user 1"));
        });
        operation("query: nearest vectors", () -> {
            var request = new QueryTableRequest().k(2).vectorColumn("vector").vector(new QueryTableRequestVector().singleVector(List.of(4f, 1f)));
            check(column(data.queryTable(USERS, request, "$"), "id").get(0), 4L);
            check(data.explainTableQueryPlan(USERS, new ExplainTableQueryPlanRequest().query(query(1)), "$").isBlank(), false);
            check(data.analyzeTableQueryPlan(USERS, new AnalyzeTableQueryPlanRequest().k(1).vector(new QueryTableRequestVector()), "$").isBlank(), false);
        });
        operation("statistics", () -> check(tables.getTableStats(USERS, new GetTableStatsRequest(), "$").getNumRows(), 5L));
    }

    static void columns(TableApi tables) {
        operation("add, alter and drop columns", () -> {
            tables.alterTableAddColumns(USERS, new AlterTableAddColumnsRequest().newColumns(
                List.of(new AddColumnsEntry().name("twice").expression("id * 2"))), "$");
            tables.alterTableAlterColumns(USERS, new AlterTableAlterColumnsRequest().alterations(
                List.of(new AlterColumnsEntry().path("twice").rename("double"))), "$");
            check(column(tables.queryTable(USERS, query(10).filter("id = 2"), "$"), "double"), List.of(4L));
            tables.alterTableDropColumns(USERS, new AlterTableDropColumnsRequest().columns(List.of("double")), "$");
            refused(404, 12, () -> tables.alterTableDropColumns(USERS, new AlterTableDropColumnsRequest().columns(List.of("none")), "$"));
        });
    }

    static void versions(TableApi tables, TagApi tags, TransactionApi transactions) {
        operation("versions", () -> {
            var listed = tables.listTableVersions(USERS, "$", null, null, null).getVersions();
            check(listed.size() >= 6, true);
            var first = tables.describeTableVersion(USERS, new DescribeTableVersionRequest().version(1L), "$").getVersion();
            check(first.getVersion(), 1L);
            refused(404, 11, () -> tables.describeTableVersion(USERS, new DescribeTableVersionRequest().version(999L), "$"));
        });
        operation("tags", () -> {
            tags.createTableTag(USERS, new CreateTableTagRequest().tag("first").version(1L), "$");
            refused(409, 9, () -> tags.createTableTag(USERS, new CreateTableTagRequest().tag("first").version(1L), "$"));
            tags.updateTableTag(USERS, new UpdateTableTagRequest().tag("first").version(2L), "$");
            check(tags.getTableTagVersion(USERS, new GetTableTagVersionRequest().tag("first"), "$").getVersion(), 2L);
            check(tags.listTableTags(USERS, "$", null, null).getTags().keySet(), java.util.Set.of("first"));
            tags.deleteTableTag(USERS, new DeleteTableTagRequest().tag("first"), "$");
            refused(404, 8, () -> tags.getTableTagVersion(USERS, new GetTableTagVersionRequest().tag("first"), "$"));
        });
        operation("restore and transactions", () -> {
            tables.createTable("shop$copied", rows(1), "$", null, null, null);
            var inserted = tables.insertIntoTable("shop$copied", rows(2), "$", "overwrite");
            String transaction = inserted.getTransactionId();
            if (transaction != null) {
                check(transactions.describeTransaction(transaction, new DescribeTransactionRequest(), "$").getStatus() != null, true);
            }
            tables.restoreTable("shop$copied", new RestoreTableRequest().version(1L), "$");
            check(column(tables.queryTable("shop$copied", query(10), "$"), "id"), List.of(1L));
        });
    }

    static void indexes(IndexApi indexes, TableApi tables) {
        operation("scalar and full-text indexes", () -> {
            indexes.createTableScalarIndex(USERS, new CreateTableIndexRequest().column("id").indexType("BTREE").name("by_id"), "$");
            indexes.createTableScalarIndex(USERS, new CreateTableIndexRequest().column("name").indexType("FTS").name("by_name"), "$");
            var listed = indexes.listTableIndices(USERS, new ListTableIndicesRequest(), "$").getIndexes();
            check(listed.stream().map(IndexContent::getIndexName).sorted().toList(), List.of("by_id", "by_name"));
            untilIndexed(indexes, "by_id", 5);
            untilIndexed(indexes, "by_name", 5);
            var words = new QueryTableRequestFullTextQuery().stringQuery(new StringFtsQuery().query("bob"));
            check(column(tables.queryTable(USERS, query(5).fullTextQuery(words), "$"), "id"), List.of(2L));
            indexes.dropTableIndex(USERS, "by_name", "$");
            refused(404, 6, () -> indexes.dropTableIndex(USERS, "none", "$"));
        });
        operation("vector index", () -> {
            long[] many = java.util.stream.LongStream.range(0, 300).toArray();
            tables.createTable("shop$many", rows(many), "$", null, null, null);
            indexes.createTableIndex("shop$many", new CreateTableIndexRequest().column("vector").indexType("IVF_FLAT").distanceType("l2"), "$");
            var request = new QueryTableRequest().k(1).vector(new QueryTableRequestVector().singleVector(Arrays.asList(7f, 1f)));
            check(column(tables.queryTable("shop$many", request.nprobes(20), "$"), "id"), List.of(7L));
        });
    }

    /** Indexes are built in the background, as the specification says. */
    static void untilIndexed(IndexApi indexes, String name, long rows) throws Exception {
        long found = -1;
        for (int second = 0; second < 120 && found != rows; second++) {
            Thread.sleep(1000);
            found = indexes.describeTableIndexStats(USERS, name, new DescribeTableIndexStatsRequest(), "$").getNumIndexedRows();
        }
        check(found, rows);
    }

    static void views(MaterializedViewApi views, TableApi tables) {
        operation("materialized view without data", () -> {
            var request = new CreateMaterializedViewRequest().kind(CreateMaterializedViewRequest.KindEnum.QUERY)
                .sourceQuery("SELECT id, name FROM shop.users").withNoData(true);
            views.createMaterializedView("shop$names", request, "$");
            check(tables.listTables("shop", "$", null, null, null).getTables().contains("names"), true);
        });
    }

    static void ends(TableApi tables, NamespaceApi namespaces) {
        operation("declare and register", () -> {
            String location = tables.declareTable("shop$declared", new DeclareTableRequest(), "$").getLocation();
            check(location != null, true);
            var asked = new DescribeTableRequest().checkDeclared(true);
            check(tables.describeTable("shop$declared", asked, "$", null, null, true).getIsOnlyDeclared(), true);
            tables.deregisterTable("shop$copied", new DeregisterTableRequest(), "$");
            refused(404, 4, () -> tables.countTableRows("shop$copied", new CountTableRowsRequest(), "$"));
        });
        operation("rename table", () -> {
            tables.renameTable("shop$many", new RenameTableRequest().newTableName("lots"), "$");
            check(rowsOf(tables, "shop$lots"), 300L);
            tables.renameTable("shop$lots", new RenameTableRequest().newTableName("lots").newNamespaceId(List.of("shop", "eu")), "$");
            check(rowsOf(tables, "shop$eu$lots"), 300L);
        });
        operation("drop tables and namespaces", () -> {
            tables.dropTable("shop$eu$lots", "$");
            refused(404, 4, () -> tables.dropTable("shop$eu$lots", "$"));
            refused(409, 3, () -> namespaces.dropNamespace("shop", new DropNamespaceRequest(), "$"));
            namespaces.dropNamespace("shop", new DropNamespaceRequest().behavior("Cascade"), "$");
            check(namespaces.listNamespaces("$", "$", null, null).getNamespaces().isEmpty(), true);
        });
    }
}
