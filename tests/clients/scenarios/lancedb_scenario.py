"""lancedb, with a REST namespace and as a remote database."""

import lancedb
import pyarrow as pa
from lancedb.index import FTS, BTree
from trying import CREDENTIAL, URL, check, operation, refused


def people(*rows):
    vectors = pa.array([[float(one), 0.0] for one, _ in rows], pa.list_(pa.float32(), 2))
    return pa.table({"id": [one for one, _ in rows], "name": [name for _, name in rows], "vector": vectors})


def rows(table, where=None):
    query = table.search().select(["id", "name"]).limit(1000)
    found = (query.where(where) if where else query).to_arrow()
    return sorted((row["id"], row["name"]) for row in found.to_pylist())


def through(how, database, space):
    """The same operations in both ways of connecting; `space` holds the tables."""
    with operation(f"{how}: create table"):
        table = database.create_table("people", people((1, "ann"), (2, "bob")), **space)
        refused(lambda: database.create_table("people", people((1, "ann")), **space), "exist")
        check(database.open_table("people", **space).count_rows(), 2)
    with operation(f"{how}: create with mode overwrite and exist_ok"):
        database.create_table("people", people((1, "ann"), (2, "bob")), exist_ok=True, **space)
        database.create_table("other", people((5, "x")), **space)
        database.create_table("other", people((6, "y")), mode="overwrite", **space)
        check(rows(database.open_table("other", **space)), [(6, "y")])
    with operation(f"{how}: add"):
        table = database.open_table("people", **space)
        table.add(people((3, "cy")))
        check(rows(table), [(1, "ann"), (2, "bob"), (3, "cy")])
    with operation(f"{how}: update and delete"):
        table.update(where="id = 1", values={"name": "zoe"})
        table.delete("id = 3")
        check(rows(table), [(1, "zoe"), (2, "bob")])
    with operation(f"{how}: merge insert"):
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(people((2, "rob"), (4, "dan")))
        check(rows(table), [(1, "zoe"), (2, "rob"), (4, "dan")])
    with operation(f"{how}: vector search"):
        near = table.search([4.0, 0.0]).limit(1).to_arrow()
        check(near["id"].to_pylist(), [4])
        check(rows(table, "id > 1"), [(2, "rob"), (4, "dan")])
    with operation(f"{how}: time travel"):
        versions = [one["version"] for one in table.list_versions()]
        table.checkout(min(versions))
        check(rows(table), [(1, "ann"), (2, "bob")])
        table.checkout_latest()
        check(len(rows(table)), 3)
    with operation(f"{how}: restore"):
        table.checkout(min(versions))
        table.restore()
        check(rows(table), [(1, "ann"), (2, "bob")])
    with operation(f"{how}: tags"):
        table.tags.create("first", min(versions))
        check(table.tags.get_version("first"), min(versions))
        check(list(table.tags.list()), ["first"])
        table.tags.delete("first")
    with operation(f"{how}: schema evolution"):
        table.add_columns({"twice": "id * 2"})
        table.alter_columns({"path": "twice", "rename": "double"})
        check(table.schema.names, ["id", "name", "vector", "double"])
        table.drop_columns(["double"])
        check(table.schema.names, ["id", "name", "vector"])
    with operation(f"{how}: bad input"):
        refused(lambda: database.open_table("nobody", **space), "nobody")
        refused(lambda: table.search().where("nothing = 1").to_arrow(), "nothing")
        refused(lambda: table.add(pa.table({"wrong": [1]})))
    with operation(f"{how}: list and drop tables"):
        check(sorted(database.list_tables(**space).tables), ["other", "people"])
        database.drop_table("other", **space)
        check(list(database.list_tables(**space).tables), ["people"])


with operation("wrong API key"):
    wrong = lancedb.connect("db://lake", api_key="foreign:wrong", host_override=URL)
    refused(lambda: wrong.list_tables(), "401")

database = lancedb.connect_namespace("rest", {"uri": URL, "header.x-api-key": CREDENTIAL})
with operation("namespace: namespaces"):
    database.create_namespace(["sales"], properties={"owner": "ann"})
    database.create_namespace(["sales", "eu"])
    check(list(database.list_namespaces(["sales"]).namespaces), ["eu"])
    check(database.describe_namespace(["sales"]).properties["owner"], "ann")
    database.drop_namespace(["sales", "eu"])
    refused(lambda: database.describe_namespace(["sales", "eu"]), "not found")
through("namespace", database, {"namespace_path": ["sales"]})
with operation("namespace: indexes"):
    table = database.open_table("people", namespace_path=["sales"])
    table.create_scalar_index("id", index_type="BTREE")
    table.create_fts_index("name")
    check(sorted(one.name for one in table.list_indices()), ["id_idx", "name_idx"])
    check(table.search("bob", query_type="fts").limit(5).to_arrow()["id"].to_pylist(), [2])
with operation("namespace: optimize"):
    table.optimize()
    check(len(rows(table)), 2)
with operation("namespace: branches"):
    branch = table.branches.create("dev")
    branch.add(people((9, "eve")))
    check((len(rows(branch)), len(rows(table))), (3, 2))
    table.branches.delete("dev")

remote = lancedb.connect("db://lake", api_key=CREDENTIAL, host_override=URL)
through("remote", remote, {})
with operation("remote: namespaces"):
    remote.create_namespace(["far"])
    assert "far" in remote.list_namespaces([]).namespaces
    remote.create_table("t", people((1, "ann")), namespace_path=["far"])
    check(list(remote.list_tables(namespace_path=["far"]).tables), ["t"])
    remote.drop_table("t", namespace_path=["far"])
    remote.drop_namespace(["far"])
with operation("remote: indexes are submitted"):
    table = remote.open_table("people")
    table.create_index("id", config=BTree())
    table.create_index("name", config=FTS())
with operation("remote: rename table"):
    remote.rename_table("people", "renamed")
    check(list(remote.list_tables().tables), ["renamed"])
