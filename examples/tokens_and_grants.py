"""Tokens and grants: a server with two clients, and what one of them is refused."""

import json
import os
import secrets
from collections.abc import Callable
from tempfile import TemporaryDirectory

import httpx
from pyiceberg.catalog import load_catalog

import tidemill
from tidemill.sdk.errors import Forbidden, Unauthenticated

OWNER, ANALYST = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
CLIENTS = {
    "owner": {"secret": OWNER},  # without grants: everything
    "analyst": {"secret": ANALYST, "grants": {"finance": ["read"], "finance.scratch": ["manage"]}},
}


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("finance")
    lake.create_namespace("finance.scratch")
    lake.create_namespace("payroll")
    lake.create_table("finance.costs", [{"month": 1, "amount": 20}])
    lake.create_table("payroll.wages", [{"name": "ann", "amount": 30}])

    with tidemill.connect(lake.url, credential=f"analyst:{ANALYST}") as analyst:
        # A grant holds for its namespace and all that is below it.
        print(analyst.table("finance.costs").to_arrow().to_pylist())
        analyst.create_table("finance.scratch.notes", [{"note": "check January"}])
        refused(Forbidden, lambda: analyst.table("finance.costs").add([{"month": 2, "amount": 10}]))
        refused(Forbidden, lambda: analyst.drop_table("finance.costs"))
        refused(Forbidden, lambda: analyst.table("payroll.wages").to_arrow())
    with tidemill.connect(lake.url) as nobody:
        refused(Unauthenticated, lambda: nobody.list_tables("finance"))

    # Iceberg clients exchange the same credential for a token, which every protocol of the server accepts.
    catalog = load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", credential=f"analyst:{ANALYST}")
    print(f"Iceberg tables of the analyst: {catalog.list_tables('finance')}")
    form = {"grant_type": "client_credentials", "client_id": "analyst", "client_secret": ANALYST}
    token = httpx.post(f"{lake.url}/iceberg/v1/oauth/tokens", data=form).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{lake.url}/v1/namespace/finance/table/list", headers=bearer).is_success
    assert httpx.get(f"{lake.url}/v1/namespace/payroll/table/list", headers=bearer).status_code == 403


def refused(expected: type[tidemill.TidemillRequestError], request: Callable[[], object]) -> None:
    try:
        request()
    except expected as error:
        print(f"{expected.__name__}: {error}")
    else:
        raise AssertionError("the request should have been refused")


if __name__ == "__main__":
    # This example starts a server of its own: clients are part of a server's settings, which it reads from
    # the environment. Nothing here needs a worker.
    os.environ["TIDEMILL_CLIENTS"] = json.dumps(CLIENTS)
    os.environ["TIDEMILL_WITH_WORKER"] = "false"
    with TemporaryDirectory() as folder, tidemill.connect(folder, credential=f"owner:{OWNER}") as lake:
        main(lake)
