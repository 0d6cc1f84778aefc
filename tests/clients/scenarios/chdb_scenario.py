"""chdb, ClickHouse in a process: the catalog as a database of the engine DataLakeCatalog."""

import json
import urllib.parse
import urllib.request

from chdb import session
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

FIELDS = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "name", "type": "string", "required": False},
]
db = session.Session()


def rows(query):
    return sorted(line.split("\t") for line in str(db.query(query, "TabSeparated")).splitlines())


def connect(name, credential):
    db.query(
        f"CREATE DATABASE {name} ENGINE = DataLakeCatalog('{ICEBERG_URL}/v1') "
        f"SETTINGS catalog_type = 'rest', warehouse = '{WAREHOUSE}', auth_scope = 'catalog', "
        f"catalog_credential = '{credential}', "
        f"oauth_server_uri = '{ICEBERG_URL}/v1/oauth/tokens'"
    )


def post(path, body, token):
    """What this client cannot make itself."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(f"{ICEBERG_URL}/v1/{path}", json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


identity, secret = CREDENTIAL.split(":")
form = {"grant_type": "client_credentials", "client_id": identity, "client_secret": secret}
asked = urllib.request.urlopen(f"{ICEBERG_URL}/v1/oauth/tokens", urllib.parse.urlencode(form).encode())
token = json.load(asked)["access_token"]
db.query("SET allow_database_iceberg = 1")
with operation("wrong OAuth2 credential"):
    refused(lambda: connect("nobody", "foreign:wrong") or rows("SHOW TABLES FROM nobody"), "credential")
with operation("connect with OAuth2"):
    connect("lake", CREDENTIAL)
    check(rows("SHOW TABLES FROM lake"), [])
with operation("list tables"):
    post("namespaces", {"namespace": ["sales"]}, token)
    post("namespaces", {"namespace": ["sales", "eu"]}, token)
    schema = {"type": "struct", "schema-id": 0, "fields": FIELDS}
    for space in ("sales", "sales%1Feu"):
        post(f"namespaces/{space}/tables", {"name": "people", "schema": schema}, token)
    check(rows("SHOW TABLES FROM lake"), [["sales.eu.people"], ["sales.people"]])
with operation("show create table"):
    shown = str(db.query("SHOW CREATE TABLE lake.`sales.people`", "TabSeparatedRaw"))
    assert all(part in shown for part in ("`id` Int64", "`name` Nullable(String)", "ENGINE = Iceberg")), shown
with operation("read a table on a local disk"):
    check(rows("SELECT * FROM lake.`sales.people`"), [])
with operation("bad input"):
    refused(lambda: rows("SELECT * FROM lake.`sales.nobody`"), "sales.nobody")
