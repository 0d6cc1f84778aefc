import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SessionCatalog;
import org.apache.iceberg.catalog.TableCommit;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NamespaceNotEmptyException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotAuthorizedException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.view.View;

/** Iceberg's Java library on a REST catalog with OAuth2. */
public class IcebergJava {
    static final String URL = System.getenv("TIDEMILL_ICEBERG_URL");
    static final String CREDENTIAL = System.getenv("TIDEMILL_CREDENTIAL");
    static final Namespace SALES = Namespace.of("sales");
    static final Namespace EU = Namespace.of("sales", "eu");
    static final TableIdentifier ORDERS = TableIdentifier.of(SALES, "orders");
    static final TableIdentifier MOVED = TableIdentifier.of(EU, "moved");
    static final TableIdentifier STAGED = TableIdentifier.of(SALES, "staged");
    static final TableIdentifier NOTES = TableIdentifier.of(SALES, "notes");
    static final Schema SCHEMA = new Schema(
        List.of(
            Types.NestedField.required(1, "id", Types.LongType.get()),
            Types.NestedField.optional(2, "name", Types.StringType.get(), "of a person")),
        java.util.Set.of(1));

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

    static void refused(Class<? extends Exception> kind, Callable<?> action) {
        try {
            action.call();
        } catch (Exception error) {
            if (kind.isInstance(error)) return;
            throw new AssertionError(error + " is not " + kind.getSimpleName(), error);
        }
        throw new AssertionError("nothing was refused");
    }

    /** The library looks for null in maps, which those of Map.of do not allow. */
    static Map<String, String> properties(String key, String value) {
        return new java.util.HashMap<>(Map.of(key, value));
    }

    static RESTCatalog catalog(Map<String, String> more) {
        Map<String, String> given = new java.util.HashMap<>(Map.of(
            "uri", URL, "warehouse", System.getenv("TIDEMILL_WAREHOUSE"), "rest.auth.type", "oauth2",
            "oauth2-server-uri", URL + "/v1/oauth/tokens", "credential", CREDENTIAL));
        given.putAll(more);
        RESTCatalog catalog = new RESTCatalog();
        catalog.initialize("lake", given);
        return catalog;
    }

    static DataFile written(Table table, String name, long... ids) throws Exception {
        DataWriter<Record> writer = Parquet.writeData(table.io().newOutputFile(table.locationProvider().newDataLocation(name)))
            .schema(table.schema()).createWriterFunc(GenericParquetWriter::create).overwrite()
            .withSpec(PartitionSpec.unpartitioned()).build();
        try (writer) {
            for (long id : ids) {
                GenericRecord record = GenericRecord.create(table.schema());
                record.setField("id", id);
                writer.write(record);
            }
        }
        return writer.toDataFile();
    }

    static List<Long> ids(Table table) throws Exception {
        List<Long> found = new ArrayList<>();
        try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
            rows.forEach(row -> found.add((Long) row.getField("id")));
        }
        return found.stream().sorted().toList();
    }

    public static void main(String[] arguments) throws Exception {
        operation("wrong OAuth2 credential", () ->
            refused(NotAuthorizedException.class, () -> catalog(Map.of("credential", CREDENTIAL + "x"))));
        try (RESTCatalog catalog = catalog(Map.of())) {
            namespaces(catalog);
            tables(catalog);
            history(catalog);
            views(catalog);
            ends(catalog);
        }
    }

    static void namespaces(RESTCatalog catalog) {
        operation("create namespace", () -> {
            catalog.createNamespace(SALES, properties("owner", "ann"));
            catalog.createNamespace(EU);
            refused(AlreadyExistsException.class, () -> { catalog.createNamespace(SALES); return 0; });
            check(catalog.listNamespaces(), List.of(SALES));
            check(catalog.listNamespaces(SALES), List.of(EU));
            check(catalog.namespaceExists(Namespace.of("nowhere")), false);
        });
        operation("namespace properties", () -> {
            catalog.setProperties(SALES, properties("team", "red"));
            catalog.removeProperties(SALES, properties("owner", "").keySet());
            check(catalog.loadNamespaceMetadata(SALES).get("team"), "red");
            check(catalog.loadNamespaceMetadata(SALES).get("owner"), null);
            refused(NoSuchNamespaceException.class, () -> catalog.loadNamespaceMetadata(Namespace.of("nowhere")));
        });
    }

    static void tables(RESTCatalog catalog) {
        operation("create table", () -> {
            Table table = catalog.buildTable(ORDERS, SCHEMA).withProperty("owner", "ann")
                .withSortOrder(SortOrder.builderFor(SCHEMA).asc("id").build()).create();
            check(table.properties().get("owner"), "ann");
            check(table.schema().identifierFieldNames(), java.util.Set.of("id"));
            refused(AlreadyExistsException.class, () -> catalog.createTable(ORDERS, SCHEMA));
            check(catalog.listTables(SALES), List.of(ORDERS));
        });
        operation("append and read", () -> {
            Table table = catalog.loadTable(ORDERS);
            table.newAppend().appendFile(written(table, "a.parquet", 1, 2)).commit();
            table.newFastAppend().appendFile(written(table, "b.parquet", 3)).commit();
            check(ids(catalog.loadTable(ORDERS)), List.of(1L, 2L, 3L));
        });
        operation("overwrite and delete", () -> {
            Table table = catalog.loadTable(ORDERS);
            DataFile more = written(table, "c.parquet", 4, 5);
            table.newAppend().appendFile(more).commit();
            table.newDelete().deleteFile(more).commit();
            table.newOverwrite().overwriteByRowFilter(Expressions.equal("id", 3))
                .addFile(written(table, "d.parquet", 30)).commit();
            check(ids(catalog.loadTable(ORDERS)), List.of(1L, 2L, 30L));
        });
        operation("staged create and replace", () -> {
            Transaction create = catalog.newCreateTableTransaction(STAGED, SCHEMA);
            create.newAppend().appendFile(written(create.table(), "s.parquet", 7)).commit();
            check(catalog.tableExists(STAGED), false);
            create.commitTransaction();
            check(ids(catalog.loadTable(STAGED)), List.of(7L));
            Transaction replace = catalog.newReplaceTableTransaction(STAGED, SCHEMA, false);
            replace.newAppend().appendFile(written(replace.table(), "r.parquet", 8)).commit();
            replace.commitTransaction();
            check(ids(catalog.loadTable(STAGED)), List.of(8L));
        });
        operation("schema evolution", () -> {
            Table table = catalog.loadTable(ORDERS);
            table.updateSchema().addColumn("qty", Types.IntegerType.get()).renameColumn("name", "called").commit();
            table.updateSchema().updateColumn("qty", Types.LongType.get()).moveFirst("qty")
                .unionByNameWith(new Schema(Types.NestedField.optional(9, "place", Types.StructType.of(
                    Types.NestedField.optional(10, "x", Types.DoubleType.get()))))).commit();
            table.updateSchema().deleteColumn("place").commit();
            check(catalog.loadTable(ORDERS).schema().columns().stream().map(one -> one.name()).toList(),
                List.of("qty", "id", "called"));
        });
        operation("partitions, order, properties and location", () -> {
            Table table = catalog.loadTable(STAGED);
            table.updateSpec().addField(Expressions.bucket("id", 4)).commit();
            table.replaceSortOrder().desc("id").commit();
            table.updateProperties().set("team", "red").remove("owner").commit();
            Table loaded = catalog.loadTable(STAGED);
            check(loaded.spec().fields().get(0).name(), "id_bucket_4");
            check(loaded.properties().get("team"), "red");
        });
        operation("conflicting commit", () -> {
            Table one = catalog.loadTable(ORDERS);
            Table other = catalog.loadTable(ORDERS);
            one.updateSchema().addColumn("by_one", Types.LongType.get()).commit();
            refused(CommitFailedException.class, () -> {
                other.updateSchema().addColumn("by_other", Types.LongType.get()).commit();
                return 0;
            });
            one.updateSchema().deleteColumn("by_one").commit();
        });
        operation("commit of several tables", () -> {
            Table orders = catalog.loadTable(ORDERS);
            Transaction first = orders.newTransaction();
            first.updateProperties().set("batch", "1").commit();
            Transaction second = catalog.loadTable(STAGED).newTransaction();
            second.updateProperties().set("batch", "1").commit();
            catalog.commitTransaction(committed(ORDERS, first), committed(STAGED, second));
            check(catalog.loadTable(ORDERS).properties().get("batch"), "1");
            check(catalog.loadTable(STAGED).properties().get("batch"), "1");
        });
    }

    static TableCommit committed(TableIdentifier name, Transaction change) {
        var base = ((org.apache.iceberg.BaseTransaction) change);
        return TableCommit.create(name, base.startMetadata(), base.currentMetadata());
    }

    static void history(RESTCatalog catalog) {
        operation("time travel, branches and tags", () -> {
            Table table = catalog.loadTable(ORDERS);
            long first = table.history().get(0).snapshotId();
            table.manageSnapshots().createTag("first", first).createBranch("audit").commit();
            table.newAppend().appendFile(written(table, "e.parquet", 99)).toBranch("audit").commit();
            Table loaded = catalog.loadTable(ORDERS);
            check(loaded.refs().keySet(), java.util.Set.of("main", "audit", "first"));
            check(loaded.snapshot("audit").summary().get("total-records"), "4");
            try (CloseableIterable<Record> rows = IcebergGenerics.read(loaded).useSnapshot(first).build()) {
                int count = 0;
                for (Record ignored : rows) count++;
                check(count, 2);
            }
        });
        operation("roll back and expire", () -> {
            Table table = catalog.loadTable(ORDERS);
            table.manageSnapshots().removeBranch("audit").removeTag("first").commit();
            table.manageSnapshots().rollbackTo(table.history().get(0).snapshotId()).commit();
            check(ids(catalog.loadTable(ORDERS)), List.of(1L, 2L));
            table.expireSnapshots().expireOlderThan(Long.MAX_VALUE).retainLast(1).commit();
            check(((java.util.Collection<?>) catalog.loadTable(ORDERS).snapshots()).size(), 1);
        });
        operation("refresh", () -> {
            Table mine = catalog.loadTable(ORDERS);
            catalog.loadTable(ORDERS).updateProperties().set("seen", "yes").commit();
            mine.refresh();
            check(mine.properties().get("seen"), "yes");
        });
        operation("scan planned by the server", () -> {
            try (RESTCatalog planning = catalog(Map.of("scan-planning-mode", "server"));
                    CloseableIterable<FileScanTask> tasks = planning.loadTable(ORDERS).newScan()
                        .filter(Expressions.greaterThan("id", 0)).planFiles()) {
                long rows = 0;
                for (FileScanTask task : tasks) rows += task.file().recordCount();
                check(rows, 2L);
            }
        });
    }

    static void views(RESTCatalog catalog) {
        operation("views", () -> {
            View view = catalog.buildView(NOTES).withSchema(SCHEMA).withDefaultNamespace(SALES)
                .withQuery("spark", "SELECT id, called AS name FROM orders").withProperty("owner", "ann").create();
            check(view.sqlFor("spark").sql(), "SELECT id, called AS name FROM orders");
            catalog.buildView(NOTES).withSchema(SCHEMA).withDefaultNamespace(SALES)
                .withQuery("spark", "SELECT 1 AS id, 'a' AS name").withQuery("trino", "SELECT 1, 'a'").createOrReplace();
            check(catalog.loadView(NOTES).history().size(), 2);
            catalog.loadView(NOTES).updateProperties().set("team", "red").commit();
            check(catalog.loadView(NOTES).properties().get("team"), "red");
            check(catalog.listViews(SALES), List.of(NOTES));
            check(catalog.listTables(SALES), List.of(ORDERS, STAGED));
            refused(AlreadyExistsException.class, () -> catalog.createTable(NOTES, SCHEMA));
            catalog.renameView(NOTES, TableIdentifier.of(EU, "notes"));
            check(catalog.dropView(TableIdentifier.of(EU, "notes")), true);
            check(catalog.viewExists(NOTES), false);
        });
    }

    static void ends(RESTCatalog catalog) {
        operation("rename table", () -> {
            catalog.renameTable(ORDERS, MOVED);
            check(ids(catalog.loadTable(MOVED)), List.of(1L, 2L));
            refused(NoSuchTableException.class, () -> catalog.loadTable(ORDERS));
            refused(AlreadyExistsException.class, () -> { catalog.renameTable(MOVED, STAGED); return 0; });
        });
        operation("register table", () -> {
            Table table = catalog.loadTable(MOVED);
            String file = ((org.apache.iceberg.BaseTable) table).operations().current().metadataFileLocation();
            check(catalog.dropTable(MOVED, false), true);
            check(ids(catalog.registerTable(MOVED, file)), List.of(1L, 2L));
        });
        operation("drop table and namespace", () -> {
            refused(NamespaceNotEmptyException.class, () -> catalog.dropNamespace(EU));
            check(catalog.dropTable(MOVED, true), true);
            check(catalog.dropTable(STAGED), true);
            check(catalog.dropTable(STAGED), false);
            check(catalog.dropNamespace(EU), true);
            check(catalog.dropNamespace(SALES), true);
            check(catalog.listNamespaces(), List.of());
        });
    }
}
