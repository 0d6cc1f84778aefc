// The scenario of iceberg-go: its REST catalog as in https://go.iceberg.apache.org/api.html.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/view"
)

var (
	ctx       = context.Background()
	namespace = table.Identifier{"go"}
	orders    = table.Identifier{"go", "orders"}
	events    = table.Identifier{"go", "events"}
	recent    = table.Identifier{"go", "recent"}
	schema    = iceberg.NewSchemaWithIdentifiers(0, []int{1},
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64, Required: true},
		iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String},
		iceberg.NestedField{ID: 3, Name: "at", Type: iceberg.PrimitiveTypes.TimestampTz},
	)
)

func main() {
	cat, err := connect(os.Getenv("TIDEMILL_CREDENTIAL"))
	try("connect with OAuth2 credential", func() error { return err })
	if err != nil {
		return
	}
	namespaces(cat)
	tables(cat)
	rows(cat)
	evolution(cat)
	snapshots(cat)
	planning(cat)
	transactions(cat)
	views(cat)
	functions(cat)
	refusals(cat)
	drops(cat)
}

func connect(credential string) (*rest.Catalog, error) {
	return rest.NewCatalog(ctx, "lake", os.Getenv("TIDEMILL_ICEBERG_URL"),
		rest.WithCredential(credential), rest.WithWarehouseLocation(os.Getenv("TIDEMILL_WAREHOUSE")))
}

func namespaces(cat *rest.Catalog) {
	try("create namespace", func() error {
		return cat.CreateNamespace(ctx, namespace, iceberg.Properties{"owner": "data", "old": "x"})
	})
	try("create nested namespace", func() error { return cat.CreateNamespace(ctx, table.Identifier{"go", "eu"}, nil) })
	try("list namespaces", func() error {
		found, err := cat.ListNamespaces(cat.SetPageSize(ctx, 1), nil)
		return is(err, slices.ContainsFunc(found, func(n table.Identifier) bool { return slices.Equal(n, namespace) }), found)
	})
	try("list nested namespaces", func() error {
		found, err := cat.ListNamespaces(ctx, namespace)
		return is(err, len(found) == 1 && slices.Equal(found[0], table.Identifier{"go", "eu"}), found)
	})
	try("namespace exists", func() error {
		found, err := cat.CheckNamespaceExists(ctx, namespace)
		missing, err2 := cat.CheckNamespaceExists(ctx, table.Identifier{"nowhere"})
		return is(errors.Join(err, err2), found && !missing, missing)
	})
	try("update namespace properties", func() error {
		done, err := cat.UpdateNamespaceProperties(ctx, namespace, []string{"old", "never"}, iceberg.Properties{"owner": "platform"})
		return is(err, slices.Equal(done.Updated, []string{"owner"}) && slices.Equal(done.Missing, []string{"never"}), done)
	})
	try("load namespace properties", func() error {
		props, err := cat.LoadNamespaceProperties(ctx, namespace)
		_, kept := props["old"]
		return is(err, props["owner"] == "platform" && !kept, props)
	})
}

func tables(cat *rest.Catalog) {
	spec := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{3}, FieldID: 1000, Name: "day", Transform: iceberg.DayTransform{}})
	order := sortedBy(1)
	try("create table", func() error {
		t, err := cat.CreateTable(ctx, orders, schema, catalog.WithProperties(iceberg.Properties{"owner": "data"}))
		return is(err, err == nil && t.Schema().NumFields() == 3 && t.Properties()["owner"] == "data", t)
	})
	try("create partitioned and sorted table", func() error {
		t, err := cat.CreateTable(ctx, events, schema, catalog.WithPartitionSpec(&spec), catalog.WithSortOrder(order))
		return is(err, err == nil && fields(t) == 1 && t.SortOrder().Len() == 1, t)
	})
	try("create format version 3 table", func() error {
		t, err := cat.CreateTable(ctx, table.Identifier{"go", "v3"}, schema, catalog.WithProperties(iceberg.Properties{"format-version": "3"}))
		return is(err, err == nil && t.Metadata().Version() == 3, t)
	})
	try("create table with staged updates", func() error {
		t, err := cat.CreateTable(ctx, table.Identifier{"go", "staged"}, schema,
			catalog.WithStagedUpdates(table.NewSetPropertiesUpdate(iceberg.Properties{"staged": "yes"})))
		return is(err, err == nil && t.Properties()["staged"] == "yes", t)
	})
	try("list tables", func() error {
		found, err := collect(cat.ListTables(cat.SetPageSize(ctx, 2), namespace))
		return is(err, found == "[events orders staged v3]", found)
	})
	try("table exists", func() error {
		found, err := cat.CheckTableExists(ctx, orders)
		missing, err2 := cat.CheckTableExists(ctx, table.Identifier{"go", "nothing"})
		return is(errors.Join(err, err2), found && !missing, missing)
	})
	try("rename table", func() error {
		moved, err := cat.RenameTable(ctx, table.Identifier{"go", "staged"}, table.Identifier{"go", "eu", "moved"})
		return is(err, err == nil && moved.Properties()["staged"] == "yes", moved)
	})
}

func rows(cat *rest.Catalog) {
	for _, ident := range []table.Identifier{orders, events, {"go", "v3"}} {
		try("append to "+ident[1], func() error {
			t, err := cat.LoadTable(ctx, ident)
			if err == nil {
				_, err = t.AppendTable(ctx, rowsOf(t, 1, 2, 3), 1024, iceberg.Properties{"by": "scenario"})
			}
			return err
		})
		try("read "+ident[1], func() error { return reads(cat, ident, "[1 2 3]") })
	}
	try("filtered scan", func() error {
		return reads(cat, orders, "[2 3]", table.WithRowFilter(iceberg.GreaterThan(iceberg.Reference("id"), int64(1))))
	})
	try("delete rows", func() error {
		t, err := cat.LoadTable(ctx, orders)
		if err == nil {
			_, err = t.Delete(ctx, iceberg.EqualTo(iceberg.Reference("id"), int64(2)), nil)
		}
		return errors.Join(err, reads(cat, orders, "[1 3]"))
	})
	try("overwrite rows", func() error {
		t, err := cat.LoadTable(ctx, orders)
		if err == nil {
			_, err = t.OverwriteTable(ctx, rowsOf(t, 7, 8), 1024, nil)
		}
		return errors.Join(err, reads(cat, orders, "[7 8]"))
	})
}

func evolution(cat *rest.Catalog) {
	try("evolve schema", func() error {
		t, err := commit(cat, orders, func(tx *table.Transaction) error {
			return tx.UpdateSchema(true, false).AddColumn([]string{"tip"}, iceberg.PrimitiveTypes.Float64, "in dollars", false, nil).
				RenameColumn([]string{"name"}, "full_name").DeleteColumn([]string{"at"}).Commit()
		})
		if err != nil {
			return err
		}
		names := []string{}
		for _, field := range t.Schema().Fields() {
			names = append(names, field.Name)
		}
		return is(nil, slices.Equal(names, []string{"id", "full_name", "tip"}), names)
	})
	try("evolve partition spec", func() error {
		t, err := commit(cat, orders, func(tx *table.Transaction) error {
			return tx.UpdateSpec(true).AddField("id", iceberg.BucketTransform{NumBuckets: 4}, "bucket").Commit()
		})
		return is(err, err == nil && fields(t) == 1, t)
	})
	try("replace sort order", func() error {
		t, err := commit(cat, orders, func(tx *table.Transaction) error { return tx.ReplaceSortOrder(sortedBy(2)) })
		return is(err, err == nil && t.SortOrder().Len() == 1, t)
	})
	try("set and remove table properties", func() error {
		t, err := commit(cat, orders, func(tx *table.Transaction) error {
			return errors.Join(tx.SetProperties(iceberg.Properties{"team": "a"}), tx.RemoveProperties([]string{"owner"}))
		})
		return is(err, err == nil && t.Properties()["team"] == "a" && t.Properties()["owner"] == "", t)
	})
	try("upgrade format version", func() error {
		t, err := commit(cat, events, func(tx *table.Transaction) error { return tx.UpgradeFormatVersion(3) })
		return is(err, err == nil && t.Metadata().Version() == 3, t)
	})
}

func snapshots(cat *rest.Catalog) {
	t, err := cat.LoadTable(ctx, orders)
	if err != nil || len(t.Metadata().Snapshots()) == 0 {
		try("snapshots", func() error { return fmt.Errorf("no snapshots to work on: %v", err) })
		return
	}
	first := t.Metadata().Snapshots()[0].SnapshotID
	try("time travel", func() error { return reads(cat, orders, "[1 2 3]", table.WithSnapshotID(first)) })
	for _, ref := range []table.RefType{table.BranchRef, table.TagRef} {
		try(fmt.Sprintf("create %s", ref), func() error {
			_, _, err := cat.CommitTable(ctx, orders, []table.Requirement{
				table.AssertTableUUID(t.Metadata().TableUUID()), table.AssertRefSnapshotID("a-"+string(ref), nil),
			}, []table.Update{table.NewSetSnapshotRefUpdate("a-"+string(ref), first, ref, 0, 0, 0)})
			return err
		})
	}
	try("append to branch", func() error {
		t, err := cat.LoadTable(ctx, orders)
		if err != nil {
			return err
		}
		tx := t.NewTransactionOnBranch("a-branch")
		if err = tx.AppendTable(ctx, rowsOf(t, 9), 1024, nil); err == nil {
			_, err = tx.Commit(ctx)
		}
		return errors.Join(err, reads(cat, orders, "[7 8]"))
	})
	try("rollback to snapshot", func() error {
		_, err := commit(cat, orders, func(tx *table.Transaction) error { return tx.RollbackToSnapshot(first) })
		return errors.Join(err, reads(cat, orders, "[1 2 3]"))
	})
	try("expire snapshots", func() error {
		_, err := commit(cat, events, func(tx *table.Transaction) error {
			return tx.ExpireSnapshots(table.WithRetainLast(1), table.WithOlderThan(0))
		})
		return err
	})
}

func planning(cat *rest.Catalog) {
	try("plan scan on the server", func() error {
		plan, err := cat.PlanTableScan(ctx, events, rest.PlanTableScanRequest{})
		return is(err, plan.Status == rest.PlanStatusCompleted && len(plan.FileScanTasks) == 1, plan.Status)
	})
}

func transactions(cat *rest.Catalog) {
	try("multi-table transaction", func() error {
		tx, err := catalog.NewMultiTableTransaction(cat)
		if err != nil {
			return err
		}
		for _, ident := range []table.Identifier{orders, events} {
			t, err := cat.LoadTable(ctx, ident)
			if err != nil {
				return err
			}
			one := t.NewTransaction()
			if err := errors.Join(one.SetProperties(iceberg.Properties{"together": "yes"}), tx.AddTransaction(one)); err != nil {
				return err
			}
		}
		err = tx.Commit(ctx)
		t, err2 := cat.LoadTable(ctx, events)
		return is(errors.Join(err, err2), err2 == nil && t.Properties()["together"] == "yes", t)
	})
	refused("conflicting commit", table.ErrCommitFailed, func() error {
		_, _, err := cat.CommitTable(ctx, orders, []table.Requirement{table.AssertCurrentSchemaID(99)},
			[]table.Update{table.NewSetPropertiesUpdate(iceberg.Properties{"never": "set"})})
		return err
	})
	try("register table", func() error {
		t, err := cat.LoadTable(ctx, orders)
		if err == nil {
			if err = cat.DropTable(ctx, orders); err == nil {
				_, err = cat.RegisterTable(ctx, orders, t.MetadataLocation())
			}
		}
		return errors.Join(err, reads(cat, orders, "[1 2 3]"))
	})
}

func views(cat *rest.Catalog) {
	version := func(id int64, sql string) *view.Version {
		made, err := view.NewVersionFromSQL(id, 0, sql, namespace)
		if err != nil {
			panic(err)
		}
		return made
	}
	try("create view", func() error {
		v, err := cat.CreateView(ctx, recent, version(1, "SELECT id FROM orders"), schema,
			catalog.WithViewProperties(iceberg.Properties{"comment": "new ones"}))
		return is(err, err == nil && v.Properties()["comment"] == "new ones", v)
	})
	try("update view", func() error {
		v, err := cat.LoadView(ctx, recent)
		if err != nil {
			return err
		}
		v, err = cat.UpdateView(ctx, recent, []view.Requirement{view.AssertViewUUID(v.Metadata().ViewUUID())},
			[]view.Update{view.NewAddViewVersionUpdate(version(2, "SELECT name FROM orders")), view.NewSetCurrentVersionUpdate(-1),
				view.NewSetPropertiesUpdate(iceberg.Properties{"comment": "names"})})
		return is(err, err == nil && v.CurrentVersion().Representations[0].Sql == "SELECT name FROM orders" && len(v.Versions()) == 2, v)
	})
	try("list views", func() error {
		found, err := collect(cat.ListViews(ctx, namespace))
		return is(err, found == "[recent]", found)
	})
	try("rename view", func() error {
		_, err := cat.RenameView(ctx, recent, table.Identifier{"go", "newest"})
		found, err2 := cat.CheckViewExists(ctx, recent)
		return is(errors.Join(err, err2), !found, found)
	})
	try("register view", func() error {
		v, err := cat.LoadView(ctx, table.Identifier{"go", "newest"})
		if err == nil {
			if err = cat.DropView(ctx, table.Identifier{"go", "newest"}); err == nil {
				_, err = cat.RegisterView(ctx, recent, v.MetadataLocation())
			}
		}
		return err
	})
	try("drop view", func() error { return cat.DropView(ctx, recent) })
}

func functions(cat *rest.Catalog) {
	try("list functions", func() error {
		_, err := collect(cat.ListFunctions(ctx, namespace))
		if errors.Is(err, rest.ErrEndpointNotSupported) {
			return nil // what the client says where the server does not advertise functions
		}
		return err
	})
}

func refusals(cat *rest.Catalog) {
	refused("refused credential", rest.ErrOAuthError, func() error { _, err := connect("foreign:wrong"); return err })
	refused("load missing table", catalog.ErrNoSuchTable, func() error { _, err := cat.LoadTable(ctx, table.Identifier{"go", "nothing"}); return err })
	refused("load missing view", catalog.ErrNoSuchView, func() error { _, err := cat.LoadView(ctx, table.Identifier{"go", "nothing"}); return err })
	refused("create existing table", catalog.ErrTableAlreadyExists, func() error { _, err := cat.CreateTable(ctx, orders, schema); return err })
	refused("create existing namespace", catalog.ErrNamespaceAlreadyExists, func() error { return cat.CreateNamespace(ctx, namespace, nil) })
	refused("create table in missing namespace", catalog.ErrNoSuchNamespace, func() error {
		_, err := cat.CreateTable(ctx, table.Identifier{"nowhere", "t"}, schema)
		return err
	})
	refused("drop namespace with tables", catalog.ErrNamespaceNotEmpty, func() error { return cat.DropNamespace(ctx, namespace) })
	refused("create table with bad property", rest.ErrBadRequest, func() error {
		_, err := cat.CreateTable(ctx, table.Identifier{"go", "bad"}, schema, catalog.WithProperties(iceberg.Properties{"format-version": "77"}))
		return err
	})
}

func drops(cat *rest.Catalog) {
	try("drop tables", func() error {
		return errors.Join(cat.DropTable(ctx, orders), cat.DropTable(ctx, table.Identifier{"go", "eu", "moved"}), cat.DropTable(ctx, table.Identifier{"go", "v3"}))
	})
	try("purge table", func() error { return cat.PurgeTable(ctx, events) })
	try("drop namespaces", func() error {
		return errors.Join(cat.DropNamespace(ctx, table.Identifier{"go", "eu"}), cat.DropNamespace(ctx, namespace))
	})
}

// Prints the outcome of one operation; a panic of the client is a failure too.
func try(operation string, run func() error) {
	line := map[string]string{"operation": operation, "outcome": "pass"}
	defer func() {
		if panicked := recover(); panicked != nil {
			line["outcome"], line["detail"] = "fail", fmt.Sprintf("panic: %v", panicked)
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}()
	if err := run(); err != nil {
		line["outcome"], line["detail"] = "fail", err.Error()
	}
}

func refused(operation string, expected error, run func() error) {
	try(operation, func() error {
		if err := run(); !errors.Is(err, expected) {
			return fmt.Errorf("expected %v, got %w", expected, err)
		}
		return nil
	})
}

func is(err error, expected bool, got any) error {
	if err == nil && !expected {
		return fmt.Errorf("got %v", got)
	}
	return err
}

func collect(found func(func(table.Identifier, error) bool)) (string, error) {
	names := []string{}
	for ident, err := range found {
		if err != nil {
			return "", err
		}
		names = append(names, ident[len(ident)-1])
	}
	slices.Sort(names)
	return fmt.Sprint(names), nil
}

func fields(t *table.Table) int {
	spec := t.Spec()
	return spec.NumFields()
}

func sortedBy(column int) table.SortOrder {
	order, err := table.NewSortOrder(1, []table.SortField{
		{SourceIDs: []int{column}, Transform: iceberg.IdentityTransform{}, Direction: table.SortDESC, NullOrder: table.NullsLast},
	})
	if err != nil {
		panic(err)
	}
	return order
}

func commit(cat *rest.Catalog, ident table.Identifier, change func(*table.Transaction) error) (*table.Table, error) {
	t, err := cat.LoadTable(ctx, ident)
	if err != nil {
		return nil, err
	}
	tx := t.NewTransaction()
	if err := change(tx); err != nil {
		return nil, err
	}
	return tx.Commit(ctx)
}

// Rows for a table: the ids, and a value for every other column.
func rowsOf(t *table.Table, ids ...int64) arrow.Table {
	target, err := table.SchemaToArrowSchema(t.Schema(), nil, false, false)
	if err != nil {
		panic(err)
	}
	lines := []string{}
	for _, id := range ids {
		line := map[string]any{"id": id, "name": "n", "at": "2026-01-02T03:04:05Z"}
		text, _ := json.Marshal(line)
		lines = append(lines, string(text))
	}
	made, err := array.TableFromJSON(memory.DefaultAllocator, target, []string{"[" + strings.Join(lines, ",") + "]"})
	if err != nil {
		panic(err)
	}
	return made
}

func reads(cat *rest.Catalog, ident table.Identifier, expected string, options ...table.ScanOption) error {
	t, err := cat.LoadTable(ctx, ident)
	if err != nil {
		return err
	}
	read, err := t.Scan(append(options, table.WithSelectedFields("id"))...).ToArrowTable(ctx)
	if err != nil {
		return err
	}
	defer read.Release()
	ids := []int64{}
	for _, chunk := range read.Column(0).Data().Chunks() {
		ids = append(ids, chunk.(*array.Int64).Int64Values()...)
	}
	slices.Sort(ids)
	return is(nil, fmt.Sprint(ids) == expected, ids)
}
