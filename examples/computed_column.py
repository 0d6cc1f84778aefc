"""A computed column: a function fills it, and a backfill computes only the rows that need it."""

import sys
from tempfile import TemporaryDirectory

import tidemill


@tidemill.udf
def words(text: str) -> int:
    return len(text.split())


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("reviews")
    reviews = lake.create_table(
        "reviews.books",
        [
            {"id": 1, "text": "Slow start, strong ending"},
            {"id": 2, "text": "I could not put it down"},
            {"id": 3, "text": "Not for me"},
        ],
    )

    # The column is part of the table at once and null until it is filled. The function reads the column that
    # has the name of its parameter.
    reviews.add_column("words", words)
    print(reviews.explain("words"))
    job = reviews.backfill("words").wait()
    assert job.progress.computed == 3

    # Change one row and append another, with any client. Tidemill knows which values are now out of date.
    reviews.to_lance().update({"text": "'Not for me, but well written'"}, where="id = 3")
    reviews.add([{"id": 4, "text": "Again!"}])
    status = reviews.column_status("words")
    print(status)
    assert (status.fresh, status.stale, status.missing) == (2, 1, 1)

    job = reviews.backfill("words").wait()
    print(f"The second backfill computed {job.progress.computed} rows and kept {job.progress.reused}.")
    assert (job.progress.computed, job.progress.reused) == (2, 2)

    for row in reviews.query(columns=["id", "words", "text"]).to_pylist():
        print(row)


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
