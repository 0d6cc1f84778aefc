// The scenario of @lancedb/lancedb: both ways to a server in https://lancedb.github.io/lancedb/js,
// `connect("db://...")` and `connectNamespace("rest", ...)`.
import assert from "node:assert/strict";
import * as lancedb from "@lancedb/lancedb";
import { Field, FixedSizeList, Float32, Int64, Schema, Utf8 } from "apache-arrow";

const { TIDEMILL_URL: url, TIDEMILL_CREDENTIAL: apiKey } = process.env;

async function attempt(operation, run) {
  let line = { operation, outcome: "pass" };
  try {
    await run();
  } catch (error) {
    line = { operation, outcome: "fail", detail: String(error?.message ?? error) };
  }
  console.log(JSON.stringify(line));
}

const rows = (...ids) => ids.map((id) => ({ id, text: `text ${id}`, vector: [id, id + 1, id + 2, id + 3] }));
const ids = async (query) => (await query.toArray()).map((row) => Number(row.id)).sort((a, b) => a - b);

async function namespaces(db, said, root) {
  await attempt(`${said} create namespace`, () => db.createNamespace([root], { properties: { owner: "data" } }));
  await attempt(`${said} create nested namespace`, () => db.createNamespace([root, "eu"], { mode: "create" }));
  await attempt(`${said} create namespace that exists is ok`, () => db.createNamespace([root], { mode: "exist_ok" }));
  await attempt(`${said} list namespaces`, async () => {
    assert.ok((await db.listNamespaces()).namespaces.includes(root));
    assert.deepEqual((await db.listNamespaces([root], { limit: 10 })).namespaces, ["eu"]);
  });
  await attempt(`${said} describe namespace`, async () =>
    assert.equal((await db.describeNamespace([root])).properties.owner, "data"));
}

async function tables(db, said, root) {
  await attempt(`${said} create table`, () => db.createTable("items", rows(1, 2, 3), [root]));
  await attempt(`${said} create empty table`, async () => {
    const vector = new FixedSizeList(4, new Field("item", new Float32(), true));
    const schema = new Schema([new Field("id", new Int64(), false), new Field("text", new Utf8(), true), new Field("vector", vector, true)]);
    const made = await db.createEmptyTable("empty", schema, [root]);
    assert.equal(await made.countRows(), 0);
  });
  await attempt(`${said} create table that exists is ok`, () => db.createTable("items", rows(9), [root], { existOk: true }));
  await attempt(`${said} overwrite table`, async () => {
    const made = await db.createTable("empty", rows(4, 5), [root], { mode: "overwrite" });
    assert.equal(await made.countRows(), 2);
  });
  await attempt(`${said} list tables`, async () => {
    assert.deepEqual(await db.tableNames([root]), ["empty", "items"]);
    const page = await db.listTables([root], { limit: 1 });
    assert.deepEqual(page.tables, ["empty"]);
    const next = await db.listTables([root], { limit: 1, pageToken: page.pageToken });
    assert.deepEqual(next.tables, ["items"]);
  });
  await attempt(`${said} open table and read schema`, async () => {
    const schema = await (await db.openTable("items", [root])).schema();
    assert.deepEqual(schema.fields.map((field) => field.name), ["id", "text", "vector"]);
  });
}

async function data(table, said) {
  await attempt(`${said} add rows`, async () => {
    await table.add(rows(4, 5));
    assert.equal(await table.countRows(), 5);
    assert.equal(await table.countRows("id > 3"), 2);
  });
  await attempt(`${said} query`, async () => {
    assert.deepEqual(await ids(table.query().where("id > 1").select(["id"]).limit(10)), [2, 3, 4, 5]);
    const [first] = await table.query().where("id = 4").toArray();
    assert.equal(first.text, "text 4");
    assert.deepEqual(Array.from(first.vector), [4, 5, 6, 7]);
  });
  await attempt(`${said} update rows`, async () => {
    const done = await table.update({ where: "id = 5", values: { text: "changed" } });
    assert.equal(done.rowsUpdated, 1);
    assert.deepEqual(await ids(table.query().where("text = 'changed'")), [5]);
  });
  await attempt(`${said} merge insert`, async () => {
    await table.mergeInsert("id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(rows(5, 6));
    assert.equal(await table.countRows("text LIKE 'text%'"), 6);
  });
  await attempt(`${said} delete rows`, async () => {
    await table.delete("id = 6");
    assert.deepEqual(await ids(table.query()), [1, 2, 3, 4, 5]);
  });
  await attempt(`${said} vector search`, async () => {
    const found = await table.vectorSearch([2, 3, 4, 5]).limit(2).toArray();
    assert.equal(Number(found[0].id), 2);
    assert.equal(found[0]._distance, 0);
  });
  await attempt(`${said} take rows`, async () => assert.equal((await table.takeOffsets([0, 1]).toArray()).length, 2));
  await attempt(`${said} explain plan`, async () => assert.match(await table.query().where("id > 1").explainPlan(true), /\w/));
}

async function columns(table, said) {
  await attempt(`${said} add columns`, async () => {
    await table.addColumns([{ name: "double", valueSql: "id * 2" }]);
    assert.equal(Number((await table.query().where("id = 2").toArray())[0].double), 4);
  });
  await attempt(`${said} alter columns`, async () => {
    await table.alterColumns([{ path: "double", rename: "twice" }]);
    assert.ok((await table.schema()).fields.some((field) => field.name === "twice"));
  });
  await attempt(`${said} update field metadata`, () =>
    table.updateFieldMetadata([{ path: "twice", metadata: { unit: "none" } }]));
  await attempt(`${said} drop columns`, async () => {
    await table.dropColumns(["twice"]);
    assert.equal((await table.schema()).fields.length, 3);
  });
}

async function indexes(table, said) {
  await attempt(`${said} create scalar index`, () => table.createIndex("id", { config: lancedb.Index.btree() }));
  await attempt(`${said} create full text index`, () => table.createIndex("text", { config: lancedb.Index.fts() }));
  await attempt(`${said} wait for indexes`, () => table.waitForIndex(["id_idx", "text_idx"], 240));
  await attempt(`${said} list indexes`, async () =>
    assert.deepEqual((await table.listIndices()).map((index) => index.name).sort(), ["id_idx", "text_idx"]));
  await attempt(`${said} index statistics`, async () => assert.equal((await table.indexStats("id_idx")).numIndexedRows, 5));
  await attempt(`${said} full text search`, async () =>
    assert.equal((await table.query().fullTextSearch("text").limit(10).toArray()).length, 5));
  await attempt(`${said} drop index`, () => table.dropIndex("id_idx"));
  await attempt(`${said} table statistics`, async () => assert.equal((await table.stats()).numRows, 5));
}

async function versions(table, said) {
  await attempt(`${said} list versions`, async () => assert.ok((await table.listVersions()).length > 3));
  await attempt(`${said} tags`, async () => {
    const tags = await table.tags();
    await tags.create("first", 1);
    assert.equal(await tags.getVersion("first"), 1);
    await tags.update("first", 2);
    assert.equal((await tags.list()).first.version, 2);
    await tags.delete("first");
  });
  await attempt(`${said} checkout and restore`, async () => {
    await table.checkout(1);
    assert.equal(await table.countRows(), 3);
    await table.restore();
    await table.checkoutLatest();
    assert.equal(await table.countRows(), 3);
  });
  await attempt(`${said} branches`, async () => {
    const branches = await table.branches();
    const branch = await branches.create("trial");
    await branch.add(rows(8));
    assert.equal(await branch.countRows(), 4);
    assert.equal(await table.countRows(), 3);
    assert.ok("trial" in (await branches.list()));
    await branches.delete("trial");
  });
}

async function drops(db, said, root) {
  if (said === "remote:") {
    await attempt(`${said} rename table`, async () => {
      await db.renameTable("empty", "renamed", { namespacePath: [root], newNamespacePath: [root, "eu"] });
      assert.deepEqual(await db.tableNames([root, "eu"]), ["renamed"]);
      await db.dropTable("renamed", [root, "eu"]);
    });
  } else {
    await attempt(`${said} drop table`, () => db.dropTable("empty", [root]));
  }
  await attempt(`${said} open missing table is refused`, () =>
    assert.rejects(db.openTable("nothing", [root]), /not found|does not exist/i));
  await attempt(`${said} create existing table is refused`, () =>
    assert.rejects(db.createTable("items", rows(1), [root]), /already exists/i));
  await attempt(`${said} bad filter is refused`, async () => {
    const table = await db.openTable("items", [root]);
    await assert.rejects(table.query().where("no_such_column = 1").toArray(), /no_such_column/);
  });
  await attempt(`${said} drop namespace with tables is refused`, () =>
    assert.rejects(db.dropNamespace([root], { behavior: "restrict" }), /not empty/i));
  await attempt(`${said} drop namespace and all below`, () => db.dropNamespace([root], { behavior: "cascade" }));
}

async function scenario(said, root, connect) {
  const db = await connect(apiKey);
  await namespaces(db, said, root);
  await tables(db, said, root);
  try {
    const table = await db.openTable("items", [root]);
    await data(table, said);
    await columns(table, said);
    await indexes(table, said);
    await versions(table, said);
  } catch (error) {
    await attempt(`${said} open table`, () => { throw error; });
  }
  await drops(db, said, root);
  await attempt(`${said} refused credential`, () =>
    assert.rejects(async () => (await connect("foreign:wrong")).tableNames(), /401|credential|unauthorized|unauthenticated/i));
}

await scenario("remote:", "node", (key) => lancedb.connect("db://tidemill", { apiKey: key, hostOverride: url }));
await scenario("namespace:", "nodens", (key) => lancedb.connectNamespace("rest", { uri: url, headers: { "x-api-key": key } }));
