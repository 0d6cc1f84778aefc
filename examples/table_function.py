"""A table function (udtf): reads many rows, yields any number of others, and is refreshed by partition."""

import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import tidemill

PAUSE_SECONDS = 30 * 60
CLICKS = [
    {"user": "ann", "second": 10, "page": "/"},
    {"user": "ann", "second": 50, "page": "/mills"},
    {"user": "ann", "second": 9_000, "page": "/tides"},
    {"user": "bob", "second": 20, "page": "/"},
    {"user": "cy", "second": 30, "page": "/mills"},
]


class Session(NamedTuple):
    user: str
    start: int
    clicks: int


@tidemill.udtf(inputs=["user", "second"])
def sessions(clicks: Any) -> Iterator[Session]:
    """Splits the clicks of one user into sessions, wherever there is a long pause."""
    rows = sorted(clicks.to_list(), key=lambda row: row["second"])
    start, last, count = rows[0]["second"], rows[0]["second"], 0
    for row in rows:
        if row["second"] - last > PAUSE_SECONDS:
            yield Session(row["user"], start, count)
            start, count = row["second"], 0
        last, count = row["second"], count + 1
    yield Session(rows[0]["user"], start, count)


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("web")
    clicks = lake.create_table("web.clicks", CLICKS)

    # The function is called once per user, with the rows of that user.
    view = lake.create_materialized_view("web.sessions", sessions.over(clicks, partition_by="user"))
    view.refresh().wait()
    show(view)
    assert view.count_rows() == 4

    # Another click of bob: only his partition is computed again.
    clicks.add([{"user": "bob", "second": 40, "page": "/tides"}])
    explanation = view.explain()
    print(explanation)
    assert (explanation.mode, explanation.keys) == ("incremental", 1)
    view.refresh().wait()
    show(view)
    assert view.count_rows("user = 'bob' AND clicks = 2") == 1

    # `verify` computes all partitions again and compares them with the view.
    verification = view.verify().wait().verification
    print(verification)
    assert verification is not None
    assert verification.is_same


def show(view: tidemill.View) -> None:
    for row in view.query(columns=["user", "start", "clicks"]).to_pylist():
        print(row)


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
