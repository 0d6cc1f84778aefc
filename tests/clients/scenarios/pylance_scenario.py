"""pylance with a REST namespace: datasets that it reads and writes itself and commits through the catalog."""

from datetime import timedelta

import lance
import lance_namespace as api
import pyarrow as pa
from lance.namespace import RestNamespace
from trying import CREDENTIAL, URL, check, operation, refused

PEOPLE = ["sales", "people"]


def people(*rows):
    return pa.table({"id": [one for one, _ in rows], "name": [name for _, name in rows]})


def opened(path=PEOPLE, **options):
    return lance.dataset(namespace_client=rest, table_id=path, **options)


def rows(dataset, **options):
    return sorted(tuple(row.values()) for row in dataset.to_table(**options).to_pylist())


def write(path, data, mode):
    return lance.write_dataset(data, namespace_client=rest, table_id=path, mode=mode)


with operation("wrong and missing API key"):
    for headers in ({"header.x-api-key": "foreign:wrong"}, {}):
        nobody = RestNamespace(uri=URL, **headers)
        refused(lambda: nobody.list_namespaces(api.ListNamespacesRequest(id=[])))  # noqa: B023
with operation("connect"):
    rest = RestNamespace(**{"uri": URL, "header.x-api-key": CREDENTIAL})
    check(list(rest.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces), [])
with operation("namespaces"):
    rest.create_namespace(api.CreateNamespaceRequest(id=["sales"], properties={"owner": "ann"}))
    rest.create_namespace(api.CreateNamespaceRequest(id=["sales", "eu"]))
    refused(lambda: rest.create_namespace(api.CreateNamespaceRequest(id=["sales"])), "exist")
    check(list(rest.list_namespaces(api.ListNamespacesRequest(id=["sales"])).namespaces), ["eu"])
    check(rest.describe_namespace(api.DescribeNamespaceRequest(id=["sales"])).properties["owner"], "ann")
    rest.namespace_exists(api.NamespaceExistsRequest(id=["sales", "eu"]))
    rest.drop_namespace(api.DropNamespaceRequest(id=["sales", "eu"]))
    refused(lambda: rest.namespace_exists(api.NamespaceExistsRequest(id=["sales", "eu"])), "not found")
with operation("create table"):
    write(PEOPLE, people((1, "ann"), (2, "bob")), "create")
    check(rows(opened()), [(1, "ann"), (2, "bob")])
    refused(lambda: write(PEOPLE, people((1, "ann")), "create"), "exist")
with operation("append"):
    write(PEOPLE, people((3, "cy")), "append")
    check(rows(opened(), filter="id > 2"), [(3, "cy")])
with operation("delete and update"):
    dataset = opened()
    dataset.delete("id = 3")
    dataset.update({"name": "'zoe'"}, where="id = 1")
    check(rows(opened()), [(1, "zoe"), (2, "bob")])
with operation("merge insert"):
    merge = opened().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    done = merge.execute(people((2, "rob"), (4, "dan")))
    check((done["num_updated_rows"], done["num_inserted_rows"]), (1, 1))
    check(rows(opened()), [(1, "zoe"), (2, "rob"), (4, "dan")])
with operation("overwrite"):
    write(PEOPLE, people((7, "gus"), (8, "hal")), "overwrite")
    check(rows(opened()), [(7, "gus"), (8, "hal")])
with operation("time travel"):
    check(rows(opened(version=1)), [(1, "ann"), (2, "bob")])
    check([one["version"] for one in opened().versions()][:2], [1, 2])
with operation("restore"):
    opened(version=1).restore()
    check(rows(opened()), [(1, "ann"), (2, "bob")])
with operation("tags"):
    dataset = opened()
    dataset.tags.create("first", 1)
    check(rows(opened(version="first")), [(1, "ann"), (2, "bob")])
    dataset.tags.update("first", 2)
    check(dataset.tags.list()["first"]["version"], 2)
    dataset.tags.delete("first")
with operation("branches"):
    branch = opened().create_branch("dev")
    branch.delete("id = 1")
    check(rows(opened().checkout_version(("dev", None))), [(2, "bob")])
    check(len(rows(opened())), 2)
    check(list(opened().branches.list()), ["dev"])
    opened().branches.delete("dev")
with operation("schema evolution"):
    dataset = opened()
    dataset.add_columns({"twice": "id * 2"})
    dataset.alter_columns({"path": "twice", "name": "double", "data_type": pa.int32()})
    check(rows(opened()), [(1, "ann", 2), (2, "bob", 4)])
    dataset = opened()
    dataset.drop_columns(["double"])
    check(opened().schema.names, ["id", "name"])
with operation("compaction and cleanup"):
    write(PEOPLE, people((5, "eve")), "append")
    opened().optimize.compact_files()
    check(len(opened().get_fragments()), 1)
    opened().cleanup_old_versions(older_than=timedelta(0))
    check(len(rows(opened())), 3)
with operation("scalar index"):
    dataset = opened()
    dataset.create_scalar_index("id", "BTREE")
    check([one.name for one in opened().describe_indices()], ["id_idx"])
    check(rows(opened(), filter="id = 2"), [(2, "bob")])
with operation("concurrent commits"):
    first, second = opened(), opened()
    first.delete("id = 5")
    second.update({"name": "'amy'"}, where="id = 1")
    check(rows(opened()), [(1, "amy"), (2, "bob")])
with operation("list, rename and deregister tables"):
    write(["sales", "other"], people((1, "x")), "create")
    rest.rename_table(api.RenameTableRequest(id=["sales", "other"], new_table_name="moved"))
    check(sorted(rest.list_tables(api.ListTablesRequest(id=["sales"])).tables), ["moved", "people"])
    place = rest.deregister_table(api.DeregisterTableRequest(id=["sales", "moved"])).location
    rest.register_table(api.RegisterTableRequest(id=["sales", "again"], location=place))
    check(rows(opened(["sales", "again"])), [(1, "x")])
with operation("query by the server"):
    query = api.QueryTableRequest(id=PEOPLE, k=10, vector={"single_vector": []}, filter="id = 1")
    found = pa.ipc.open_file(rest.query_table(query).data).read_all()
    check(found["name"].to_pylist(), ["amy"])
    check(rest.count_table_rows(api.CountTableRowsRequest(id=PEOPLE)).count, 2)
with operation("bad input"):
    refused(lambda: opened(["sales", "nobody"]), "nobody")
    refused(lambda: opened(version=99))
    refused(lambda: opened().delete("nothing = 1"), "nothing")
with operation("drop tables"):
    for name in ("people", "again"):
        rest.drop_table(api.DropTableRequest(id=["sales", name]))
    check(list(rest.list_tables(api.ListTablesRequest(id=["sales"])).tables), [])
    rest.drop_namespace(api.DropNamespaceRequest(id=["sales"]))
