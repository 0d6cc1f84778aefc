"""Branches: try changes on a branch of a table, with computed values of its own, and leave main alone."""

import sys
from tempfile import TemporaryDirectory
from typing import Any

import tidemill


@tidemill.udf
def slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("blog")
    titles = ["High tide", "Old mills", "Grain and stone"]
    posts = lake.create_table(
        "blog.posts", [{"id": number, "title": title} for number, title in enumerate(titles)]
    )
    posts.add_column("slug", slug)
    posts.backfill("slug").wait()

    # Branches belong to Lance: pylance creates, writes and reads them, and the server commits every change.
    posts.to_lance().create_branch("redesign")

    # The column is declared once, for all branches. Values that were computed on main are right on a new
    # branch as well, so that only rows that change there are computed.
    job = posts.backfill("slug", branch="redesign").wait()
    assert job.progress.computed == 0
    branch(posts, "redesign").update({"title": "'Tide tables'"}, where="id = 0")
    print(posts.column_status("slug", branch="redesign"))
    job = posts.backfill("slug", branch="redesign").wait()
    assert (job.branch, job.progress.computed) == ("redesign", 1)

    # Nothing of that has touched main.
    print(posts.column_status("slug"))
    assert posts.column_status("slug").is_fresh
    on_main = posts.query(columns=["slug"])["slug"].to_pylist()
    on_branch = branch(posts, "redesign").to_table(columns=["slug"])["slug"].to_pylist()
    print(f"main: {on_main}\nredesign: {on_branch}")
    assert sorted(set(on_branch) - set(on_main)) == ["tide-tables"]


def branch(table: tidemill.Table, name: str) -> Any:
    """The latest version of a branch, as a `lance.LanceDataset`."""
    return table.to_lance().checkout_version((name, None))


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
