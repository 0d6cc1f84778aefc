// The scenario of iceberg-js, a client of catalogs alone: https://supabase.github.io/iceberg-js.
import assert from "node:assert/strict";
import { IcebergRestCatalog, getCurrentSchema } from "iceberg-js";

const { TIDEMILL_ICEBERG_URL: baseUrl, TIDEMILL_WAREHOUSE: warehouse, TIDEMILL_CREDENTIAL: credential } = process.env;
const home = { namespace: ["js"] };
const below = { namespace: ["js", "eu"] };
const orders = { ...home, name: "orders" };
const schema = {
  type: "struct",
  "schema-id": 0,
  "identifier-field-ids": [1],
  fields: [
    { id: 1, name: "id", type: "long", required: true },
    { id: 2, name: "price", type: "decimal(10, 2)", required: false },
    { id: 3, name: "tags", type: { type: "list", "element-id": 4, element: "string", "element-required": false }, required: false },
  ],
};

async function attempt(operation, run) {
  let line = { operation, outcome: "pass" };
  try {
    await run();
  } catch (error) {
    line = { operation, outcome: "fail", detail: String(error?.message ?? error) };
  }
  console.log(JSON.stringify(line));
}

const refused = (operation, status, run) => attempt(operation, () => assert.rejects(run, (error) => {
  assert.equal(error.status, status, error.message);
  return true;
}));

const connect = (token) => new IcebergRestCatalog({ baseUrl, warehouse, auth: { type: "bearer", token }, accessDelegation: ["vended-credentials"] });

// The client takes a token and leaves it to its user to get one.
async function token() {
  const [id, secret] = credential.split(":");
  const body = new URLSearchParams({ grant_type: "client_credentials", client_id: id, client_secret: secret });
  const answer = await fetch(`${baseUrl}/v1/oauth/tokens`, { method: "POST", body });
  return (await answer.json()).access_token;
}

async function namespaces(catalog) {
  await attempt("create namespace", () => catalog.createNamespace(home, { properties: { owner: "data", old: "x" } }));
  await attempt("create nested namespace", () => catalog.createNamespaceIfNotExists(below));
  await attempt("create namespace if it does not exist", () => catalog.createNamespaceIfNotExists(home));
  await attempt("list namespaces", async () => {
    assert.ok((await catalog.listNamespaces({ pageSize: 10 })).namespaces.some((found) => found.namespace[0] === "js"));
    assert.deepEqual((await catalog.listNamespaces({ parent: home })).namespaces, [below]);
  });
  await attempt("update namespace properties", async () => {
    const done = await catalog.updateNamespaceProperties(home, { removals: ["old"], updates: { owner: "platform" } });
    assert.deepEqual([done.removed, done.updated], [["old"], ["owner"]]);
    assert.equal((await catalog.loadNamespaceMetadata(home)).properties.owner, "platform");
  });
  await attempt("namespace exists", async () => {
    assert.equal(await catalog.namespaceExists(below), true);
    assert.equal(await catalog.namespaceExists({ namespace: ["nowhere"] }), false);
  });
}

async function tables(catalog) {
  await attempt("create table", async () => {
    const spec = { "spec-id": 0, fields: [{ "source-id": 1, "field-id": 1000, name: "bucket", transform: "bucket[4]" }] };
    const order = { "order-id": 1, fields: [{ "source-id": 1, transform: "identity", direction: "asc", "null-order": "nulls-first" }] };
    const made = await catalog.createTable(home, { name: "orders", schema, "partition-spec": spec, "write-order": order, properties: { team: "a" } });
    assert.equal(made.properties.team, "a");
    assert.equal(getCurrentSchema(made).fields.length, 3);
  });
  await attempt("create table if it does not exist", async () =>
    assert.equal((await catalog.createTableIfNotExists(home, { name: "orders", schema })).properties.team, "a"));
  await attempt("stage table and commit it", async () => {
    const staged = { ...home, name: "staged" };
    const { metadata } = await catalog.createTableResult(home, { name: "staged", schema, "stage-create": true });
    assert.equal(await catalog.tableExists(staged), false);
    await catalog.commitTable(staged, {
      requirements: [{ type: "assert-create" }],
      updates: [
        { action: "assign-uuid", uuid: metadata["table-uuid"] },
        { action: "upgrade-format-version", "format-version": metadata["format-version"] },
        { action: "add-schema", schema: getCurrentSchema(metadata) },
        { action: "set-current-schema", "schema-id": -1 },
        { action: "add-spec", spec: metadata["partition-specs"][0] },
        { action: "set-default-spec", "spec-id": -1 },
        { action: "add-sort-order", "sort-order": metadata["sort-orders"][0] },
        { action: "set-default-sort-order", "sort-order-id": -1 },
        { action: "set-location", location: metadata.location },
      ],
    });
    assert.equal(await catalog.tableExists(staged), true);
  });
  await attempt("list tables page by page", async () => {
    const first = await catalog.listTables(home, { pageSize: 1 });
    const second = await catalog.listTables(home, { pageSize: 1, pageToken: first.nextPageToken });
    assert.deepEqual([first, second].flatMap((page) => page.identifiers.map((found) => found.name)), ["orders", "staged"]);
  });
  await attempt("load table unless it is unchanged", async () => {
    const loaded = await catalog.loadTableResult(orders, { snapshots: "refs" });
    assert.ok(loaded.etag);
    assert.equal(await catalog.loadTable(orders, { snapshots: "refs", ifNoneMatch: loaded.etag }), null);
  });
}

async function changes(catalog) {
  await attempt("evolve schema", async () => {
    const before = await catalog.loadTable(orders);
    const fields = [...getCurrentSchema(before).fields, { id: 5, name: "tip", type: "double", required: false }];
    const { metadata } = await catalog.updateTable(orders, {
      requirements: [
        { type: "assert-table-uuid", uuid: before["table-uuid"] },
        { type: "assert-current-schema-id", "current-schema-id": before["current-schema-id"] },
      ],
      updates: [
        { action: "add-schema", schema: { type: "struct", fields }, "last-column-id": 5 },
        { action: "set-current-schema", "schema-id": -1 },
        { action: "set-properties", updates: { "read.split.target-size": "134217728" } },
        { action: "remove-properties", removals: ["team"] },
      ],
    });
    assert.ok(getCurrentSchema(metadata).fields.some((field) => field.name === "tip"));
    assert.equal(metadata.properties.team, undefined);
  });
  await attempt("rename table", async () => {
    await catalog.renameTable({ source: { ...home, name: "staged" }, destination: { ...below, name: "moved" } });
    assert.equal(await catalog.tableExists({ ...below, name: "moved" }), true);
  });
  await attempt("register table", async () => {
    const { "metadata-location": location } = await catalog.loadTableResult(orders);
    await catalog.dropTable(orders);
    const made = await catalog.registerTable(home, { name: "orders", "metadata-location": location });
    assert.ok(getCurrentSchema(made).fields.some((field) => field.name === "tip"));
  });
}

async function refusals(catalog) {
  await refused("refused credential", 401, () => connect("wrong").listNamespaces());
  await refused("load missing table", 404, () => catalog.loadTable({ ...home, name: "nothing" }));
  await refused("create existing namespace", 409, () => catalog.createNamespace(home));
  await refused("create existing table", 409, () => catalog.createTable(home, { name: "orders", schema }));
  await refused("create table with bad type", 400, () =>
    catalog.createTable(home, { name: "bad", schema: { ...schema, fields: [{ id: 1, name: "id", type: "number", required: true }] } }));
  await refused("conflicting commit", 409, () =>
    catalog.updateTable(orders, { requirements: [{ type: "assert-default-spec-id", "default-spec-id": 99 }], updates: [] }));
  await refused("drop namespace with tables", 409, () => catalog.dropNamespace(home));
}

async function drops(catalog) {
  await attempt("drop table", () => catalog.dropTable({ ...below, name: "moved" }));
  await attempt("purge table", () => catalog.dropTable(orders, { purge: true }));
  await attempt("drop namespaces", async () => {
    await catalog.dropNamespace(below);
    await catalog.dropNamespace(home);
  });
}

const catalog = connect(await token());
for (const part of [namespaces, tables, changes, refusals, drops]) await part(catalog);
