"""A stateful function: a class that loads its model once per worker process, not once per row."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import tidemill

MESSAGES = ["what a great day", "an awful and slow service", "good food and great staff", "it was fine"]


@tidemill.udf
class Sentiment:
    """Adds up the scores of the words it knows."""

    def __init__(self, model: str) -> None:
        # Runs here. Keep it small: the instance travels to the workers.
        self.model = Path(model)

    def setup(self) -> None:
        # Runs in each worker process before its first row. Load models here.
        self.scores = json.loads(self.model.read_text())
        with self.model.with_suffix(".log").open("a") as log:
            log.write(f"{os.getpid()}\n")

    def __call__(self, message: str) -> int:
        return sum(self.scores.get(word, 0) for word in message.split())


def main(lake: tidemill.Lake, model: Path) -> None:
    model.write_text(json.dumps({"great": 2, "good": 1, "slow": -1, "awful": -2}))
    lake.create_namespace("feedback")
    rows = [{"id": number, "message": MESSAGES[number % len(MESSAGES)]} for number in range(2_000)]
    messages = lake.create_table("feedback.messages", rows)

    # Another model is another version of the function: the next backfill would compute every row.
    messages.add_column("sentiment", Sentiment(str(model)))
    job = messages.backfill("sentiment").wait()

    for row in messages.query(columns=["message", "sentiment"], limit=4).to_pylist():
        print(row)
    loads = model.with_suffix(".log").read_text().splitlines()
    print(f"{job.progress.computed:,} rows; the model was loaded {len(loads)} times, once per process.")
    assert job.progress.computed == 2_000
    assert len(loads) == len(set(loads))
    assert messages.count_rows("sentiment = 3") == 500


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake, Path(folder) / "model.json")
