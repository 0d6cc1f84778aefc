"""Iceberg with pyiceberg: the server is an Iceberg REST catalog as well."""

import sys
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyiceberg.catalog import load_catalog

import tidemill


def main(lake: tidemill.Lake) -> None:
    # All that an Iceberg client needs is this address. The name of the warehouse is `tidemill` by default.
    catalog = load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", warehouse="tidemill")

    catalog.create_namespace("harbour")
    ships = pa.table({"id": [1, 2, 3], "name": ["Anna", "Bounty", "Cutty"], "tonnes": [120, 215, 963]})
    table = catalog.create_table("harbour.ships", schema=ships.schema)
    table.append(ships)

    # Both changes are one commit. The snapshot before it can still be read.
    before = table.metadata.current_snapshot_id
    with table.transaction() as transaction:
        transaction.delete("id = 2")
        with transaction.update_schema() as update:
            update.rename_column("tonnes", "displacement")
    print(table.scan(row_filter="displacement >= 500").to_arrow().to_pylist())
    assert table.scan().to_arrow()["name"].to_pylist() == ["Anna", "Cutty"]
    assert table.scan(snapshot_id=before).to_arrow()["name"].to_pylist() == ["Anna", "Bounty", "Cutty"]

    # The server refuses a commit that was prepared for an older state of the table. pyiceberg reloads the
    # table then and tries again, so two writers do not lose each other's rows.
    ours, theirs = catalog.load_table("harbour.ships"), catalog.load_table("harbour.ships")
    theirs.append(pa.table({"id": [4], "name": ["Dunbrody"], "displacement": [458]}))
    ours.append(pa.table({"id": [5], "name": ["Endeavour"], "displacement": [368]}))
    assert catalog.load_table("harbour.ships").scan().to_arrow().num_rows == 4

    # Lance tables live in the same namespace, and a name can be used only once.
    lake.create_table("harbour.berths", [{"berth": 1, "ship": "Anna"}])
    print(f"Iceberg: {catalog.list_tables('harbour')}, Lance: {lake.list_tables('harbour')}")
    assert catalog.list_tables("harbour") == [("harbour", "ships")]


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
