"""Errors and retries: what a backfill does about rows on which its function fails."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import tidemill

PRICES = {"apple": 0.4, "pear": 0.5}


@tidemill.udf
class Price:
    """Looks prices up in a file, the way other functions call a service. The first call fails."""

    def __init__(self, prices: str) -> None:
        self.prices = Path(prices)

    def setup(self) -> None:
        self.is_connected = False

    def __call__(self, item: str) -> float:
        if not self.is_connected:
            self.is_connected = True
            raise ConnectionError("the price service reset the connection")
        return float(json.loads(self.prices.read_text())[item])


def main(lake: tidemill.Lake, prices: Path) -> None:
    prices.write_text(json.dumps(PRICES))
    lake.create_namespace("shop")
    items = lake.create_table(
        "shop.items", [{"item": name} for name in ("apple", "quince", "pear", "medlar")]
    )
    items.add_column("price", Price(str(prices)))

    # By default, the first row that fails ends the job, and nothing is published.
    show_failure(items, tidemill.fail())
    # Connections come back, so try these rows again. A price that does not exist still ends the job.
    retry = tidemill.retry(attempts=3, backoff=0.1, on=[ConnectionError])
    show_failure(items, retry)
    # Leave failing rows null, but accept only one of them.
    show_failure(items, tidemill.skip(limit=1, retry=retry))

    job = items.backfill("price", on_error=tidemill.skip(limit=10, retry=retry)).wait()
    print(f"{job.progress.done} rows, {job.progress.skipped} of them skipped:")
    for error in items.errors("price", job):
        print(f"  {error}")
    assert [error.exception for error in items.errors("price", job)] == ["KeyError", "KeyError"]
    assert items.explain("price").is_noop  # the next backfill leaves skipped rows alone ...

    prices.write_text(json.dumps({**PRICES, "quince": 0.9, "medlar": 1.2}))
    job = items.retry_failed("price", on_error=retry).wait()  # ... unless you ask for them
    print(f"{job.progress.computed} rows computed again: {items.column_status('price')}")
    assert items.failed_rows("price") == []
    assert items.count_rows("price IS NULL") == 0


def show_failure(items: tidemill.Table, on_error: tidemill.OnError) -> None:
    try:
        items.backfill("price", on_error=on_error).wait()
    except tidemill.JobFailed as error:
        print(error)
    else:
        raise AssertionError("the job should have failed")
    assert items.count_rows("price IS NOT NULL") == 0


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake, Path(folder) / "prices.json")
