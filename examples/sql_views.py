"""SQL views: filters, groups and joins are refreshed incrementally, and `explain` says where that fails."""

import sys
from tempfile import TemporaryDirectory

import tidemill

VIEWS = {
    "large": "SELECT id, customer, amount FROM market.orders WHERE amount >= 100",
    "totals": """
        SELECT customer, count(*) AS orders, sum(amount) AS total FROM market.orders GROUP BY customer
    """,
    "by_country": """
        SELECT o.id, o.amount, c.country
        FROM market.orders AS o JOIN market.customers AS c ON o.customer = c.name
    """,
    # Any order may change which three are the largest, so a refresh computes all of it.
    "top": "SELECT id, amount FROM market.orders ORDER BY amount DESC LIMIT 3",
}


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("market")
    customers = [{"name": "ann", "country": "NL"}, {"name": "bob", "country": "FR"}]
    lake.create_table("market.customers", customers)
    names = ["ann", "bob", "cy"]
    orders = lake.create_table(
        "market.orders",
        [{"id": number, "customer": names[number % 3], "amount": 25 * number} for number in range(9)],
    )
    views = {name: lake.create_materialized_view(f"market.{name}", query) for name, query in VIEWS.items()}
    refresh(views)

    # One new order: explain says what each refresh would compute, and why.
    orders.add([{"id": 9, "customer": "ann", "amount": 500}])
    for view in views.values():
        print(view.explain(), end="\n\n")
    modes = {name: view.explain().mode for name, view in views.items()}
    assert modes == {
        "large": "incremental",
        "totals": "incremental",
        "by_country": "incremental",
        "top": "full",
    }

    refresh(views)
    for row in views["totals"].query(columns=["customer", "orders", "total"]).to_pylist():
        print(row)
    assert views["totals"].count_rows("customer = 'ann' AND orders = 4 AND total = 725") == 1
    assert views["by_country"].count_rows("country = 'NL'") == 4
    assert views["top"].count_rows("amount = 500") == 1
    assert all(view.status().is_fresh for view in views.values())


def refresh(views: dict[str, tidemill.View]) -> None:
    for job in [view.refresh() for view in views.values()]:
        job.wait()


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
