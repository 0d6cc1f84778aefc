"""Columns of Geneva's own client: run by `make interop`, in an environment of its own."""

# Without postponed annotations: the client tells from them what a function takes.

import sys
import warnings
from typing import NamedTuple

warnings.filterwarnings("ignore")

import geneva  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402

from tests.interop.geneva.client import TEXTS, Scenarios, check, message_of, new_name, row, run, values  # noqa: E402


@geneva.udf
def word_count(text: str) -> int:
    return len(text.split())


@geneva.udf
def letter_count(text: str) -> int:
    return len(text.replace(" ", ""))


@geneva.udf(data_type=pa.int64())
def doubled(id: pa.Array) -> pa.Array:
    return pc.multiply(id, 2)


@geneva.udf(data_type=pa.string())
def described(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([f"{i}:{t}" for i, t in zip(*batch.to_pydict().values(), strict=True)])


@geneva.udf(data_type=pa.float32())
class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, id: int) -> float:
        return id * self.factor


class Size(NamedTuple):
    words: int
    letters: int


@geneva.udf
def size(text: str) -> geneva.Columns[Size]:
    return Size(len(text.split()), len(text.replace(" ", "")))


@geneva.udf
def failing(text: str) -> int:
    raise ValueError(f"cannot read {text!r}")


@geneva.udf(data_type=pa.list_(pa.float32(), 2))
def vector(id: int) -> list[float]:
    return [id, id / 2]


class ColumnScenarios(Scenarios):
    def scenario_scalar_function(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        check(self.filled(table, "n"), [2, 1, 3])

    def scenario_arrow_function(self) -> None:
        table = self.table()
        table.add_columns({"n": doubled})
        check(self.filled(table, "n"), [2, 4, 6])

    def scenario_record_batch_function(self) -> None:
        table = self.table()
        table.add_columns({"n": described})
        check(self.filled(table, "n"), ["1:a b", "2:c", "3:d e f"])

    def scenario_stateful_function(self) -> None:
        table = self.table()
        table.add_columns({"n": Scaled(0.5)})
        check(self.filled(table, "n"), [0.5, 1.0, 1.5])

    def scenario_several_outputs(self) -> None:
        table = self.table()
        table.add_columns(size)
        check(self.filled(table, "words"), [2, 1, 3])
        check(values(table, "letters"), [2, 1, 3])

    def scenario_input_under_another_name(self) -> None:
        table = self.db.create_table(new_name(), pa.table({"id": [1, 2, 3], "body": TEXTS}))
        table.add_columns({"n": (word_count, ["body"])})
        check(self.filled(table, "n"), [2, 1, 3])

    def scenario_synchronous_backfill(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        table.backfill("n")
        check(values(table, "n"), [2, 1, 3])

    def scenario_backfill_after_changes(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        self.filled(table, "n")
        table.add(row(4, "g h i j"))
        table.update(where="id = 1", values={"text": "changed to five words now"})
        table.optimize()
        table.delete("id = 2")
        check(self.filled(table, "n"), [5, 3, 4])

    def scenario_backfill_where(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        check(self.filled(table, "n", where="id > 1"), [None, 1, 3])

    def scenario_another_function(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        check(self.filled(table, "n"), [2, 1, 3])
        table.add(row(4, "gh ij"))
        table.alter_columns({"path": "n", "udf": letter_count})
        check(self.filled(table, "n"), [2, 1, 3, 4])

    def scenario_failing_function(self) -> None:
        table = self.table()
        table.add_columns({"n": failing})
        said = message_of(lambda: self.filled(table, "n"))
        assert "cannot read 'a b'" in said, said

    def scenario_vectors(self) -> None:
        table = self.table()
        table.add_columns({"v": vector})
        check(self.filled(table, "v"), [[1.0, 0.5], [2.0, 1.0], [3.0, 1.5]])

    def scenario_opened_again(self) -> None:
        table = self.db.open_table(self.table().name)
        table.add_columns({"n": word_count})
        check(self.filled(self.db.open_table(table.name), "n"), [2, 1, 3])
        table.drop_columns(["n"])
        assert "n" not in self.db.open_table(table.name).schema.names
        table.add_columns({"n": letter_count})
        check(self.filled(self.db.open_table(table.name), "n"), [2, 1, 3])
        assert table.name in self.db.table_names(limit=10_000)
        self.db.drop_table(table.name)
        assert table.name not in self.db.table_names(limit=10_000)

    def scenario_list_of_jobs(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        self.filled(table, "n")
        (job,) = list(self.db.list_jobs(table_name=table.name))
        assert job.status == "DONE", job


def main(url: str, *wanted: str) -> int:
    db = geneva.connect("db://lake", host_override=url, api_key="k")
    return run(ColumnScenarios(db), f"geneva {geneva.__version__}", wanted)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
