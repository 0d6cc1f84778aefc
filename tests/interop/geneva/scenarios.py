"""What users do with Geneva's own client: run by `make interop`, in an environment of its own."""

# Without postponed annotations: the client tells from them what a function takes.

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Final, NamedTuple
from uuid import uuid4

warnings.filterwarnings("ignore")

import geneva  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402

TEXTS: Final = ["a b", "c", "d e f"]
WAIT_SECONDS: Final = 240


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


class Word(NamedTuple):
    word: str
    position: int


@geneva.chunker
def words(text: str) -> Iterator[Word]:
    for position, word in enumerate(text.split()):
        yield Word(word, position)


@geneva.udtf(output_schema=pa.schema([("total", pa.int64())]))
def total(source: Any) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([source.to_arrow().num_rows])], ["total"])


@geneva.chunker(batch=True, output_schema=pa.schema([("word", pa.string())]))
def words_at_once(text: pa.Array, __source_row_id: pa.Array) -> pa.RecordBatch:
    lines = zip(__source_row_id.to_pylist(), text.to_pylist(), strict=True)
    found = [(source, word) for source, line in lines for word in line.split()]
    return pa.RecordBatch.from_pydict(
        {"word": [word for _, word in found], "__source_row_id": [source for source, _ in found]}
    )


@geneva.udtf(
    output_schema=pa.schema([("key", pa.string()), ("rows", pa.int64())]),
    input_columns=["key"],
    partition_by="key",
)
class Counts:
    def __call__(self, source: Any) -> Iterator[pa.RecordBatch]:
        keys = source.to_arrow()["key"].to_pylist()
        yield pa.RecordBatch.from_pydict({"key": keys[:1], "rows": [len(keys)]})


@geneva.udf(data_type=pa.list_(pa.float32(), 2))
def vector(id: int) -> list[float]:
    return [id, id / 2]


class Scenarios:
    """Each method is a scenario with tables of its own."""

    def __init__(self, url: str) -> None:
        self.db = geneva.connect("db://lake", host_override=url, api_key="k")

    def table(self) -> Any:
        return self.db.create_table(_name(), pa.table({"id": [1, 2, 3], "text": TEXTS}))

    def scenario_scalar_function(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        _check(self.filled(table, "n"), [2, 1, 3])

    def scenario_arrow_function(self) -> None:
        table = self.table()
        table.add_columns({"n": doubled})
        _check(self.filled(table, "n"), [2, 4, 6])

    def scenario_record_batch_function(self) -> None:
        table = self.table()
        table.add_columns({"n": described})
        _check(self.filled(table, "n"), ["1:a b", "2:c", "3:d e f"])

    def scenario_stateful_function(self) -> None:
        table = self.table()
        table.add_columns({"n": Scaled(0.5)})
        _check(self.filled(table, "n"), [0.5, 1.0, 1.5])

    def scenario_several_outputs(self) -> None:
        table = self.table()
        table.add_columns(size)
        _check(self.filled(table, "words"), [2, 1, 3])
        _check(_column(table, "letters"), [2, 1, 3])

    def scenario_input_under_another_name(self) -> None:
        table = self.db.create_table(_name(), pa.table({"id": [1, 2, 3], "body": TEXTS}))
        table.add_columns({"n": (word_count, ["body"])})
        _check(self.filled(table, "n"), [2, 1, 3])

    def scenario_synchronous_backfill(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        table.backfill("n")
        _check(_column(table, "n"), [2, 1, 3])

    def scenario_backfill_after_changes(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        self.filled(table, "n")
        table.add(pa.table({"id": [4], "text": ["g h i j"]}))
        table.update(where="id = 1", values={"text": "changed to five words now"})
        table.optimize()
        table.delete("id = 2")
        _check(self.filled(table, "n"), [5, 3, 4])

    def scenario_backfill_where(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        _check(self.filled(table, "n", where="id > 1"), [None, 1, 3])

    def scenario_another_function(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        _check(self.filled(table, "n"), [2, 1, 3])
        table.add(pa.table({"id": [4], "text": ["gh ij"]}))
        table.alter_columns({"path": "n", "udf": letter_count})
        _check(self.filled(table, "n"), [2, 1, 3, 4])

    def scenario_failing_function(self) -> None:
        table = self.table()
        table.add_columns({"n": failing})
        said = ""
        try:
            self.filled(table, "n")
        except RuntimeError as error:
            said = str(error)
        assert "cannot read 'a b'" in said, said

    def scenario_query_view(self) -> None:
        table = self.table()
        query = table.search(None).select({"id": "id", "twice": "id * 2", "n": word_count}).where("id > 1")
        view = self.db.create_materialized_view(_name(), query)
        _check(self.refreshed(view), [(2, 4, 1), (3, 6, 3)], "id", "twice", "n")
        table.add(pa.table({"id": [4], "text": ["g h"]}))
        table.update(where="id = 2", values={"text": "x y z"})
        _check(self.refreshed(view), [(2, 4, 3), (3, 6, 3), (4, 8, 2)], "id", "twice", "n")

    def scenario_synchronous_refresh(self) -> None:
        view = self.db.create_materialized_view(_name(), self.table().search(None).select({"id": "id"}))
        view.refresh()
        _check(view, [(1,), (2,), (3,)], "id")

    def scenario_chunker_view(self) -> None:
        table = self.table()
        view = self.make_view(table.search(None).select(["id", "text"]), words)
        expected = [(1, "a", 0), (1, "b", 1), (2, "c", 0), (3, "d", 0), (3, "e", 1), (3, "f", 2)]
        _check(self.refreshed(view), expected, "id", "word", "position")
        table.delete("id = 3")
        table.add(pa.table({"id": [4], "text": ["g"]}))
        _check(self.refreshed(view), [*expected[:3], (4, "g", 0)], "id", "word", "position")

    def scenario_table_function_view(self) -> None:
        table = self.table()
        view = self.make_view(table.search(None), total)
        _check(self.refreshed(view), [(3,)], "total")
        table.add(pa.table({"id": [4], "text": ["g"]}))
        _check(self.refreshed(view), [(4,)], "total")

    def scenario_chunker_of_batches(self) -> None:
        view = self.make_view(self.table().search(None).select(["id", "text"]), words_at_once)
        expected = [(1, "a"), (1, "b"), (2, "c"), (3, "d"), (3, "e"), (3, "f")]
        _check(self.refreshed(view), expected, "id", "word")

    def scenario_table_function_by_partitions(self) -> None:
        table = self.db.create_table(_name(), pa.table({"key": ["u", "v", "u"]}))
        view = self.make_view(table.search(None), Counts())
        _check(self.refreshed(view), [("u", 2), ("v", 1)], "key", "rows")

    def scenario_vectors(self) -> None:
        table = self.table()
        table.add_columns({"v": vector})
        _check(self.filled(table, "v"), [[1.0, 0.5], [2.0, 1.0], [3.0, 1.5]])

    def scenario_view_with_limit_and_all_columns(self) -> None:
        view = self.db.create_materialized_view(_name(), self.table().search(None).offset(1).limit(1))
        _check(self.refreshed(view), [(2, "c")], "id", "text")

    def scenario_view_of_a_compacted_table(self) -> None:
        table = self.table()
        table.add(pa.table({"id": [4], "text": ["g"]}))
        view = self.db.create_materialized_view(_name(), table.search(None).select({"id": "id"}))
        _check(self.refreshed(view), [(1,), (2,), (3,), (4,)], "id")
        table.optimize()
        table.delete("id = 1")
        _check(self.refreshed(view), [(2,), (3,), (4,)], "id")

    def scenario_opened_again(self) -> None:
        table = self.db.open_table(self.table().name)
        table.add_columns({"n": word_count})
        _check(self.filled(self.db.open_table(table.name), "n"), [2, 1, 3])
        table.drop_columns(["n"])
        assert "n" not in self.db.open_table(table.name).schema.names
        table.add_columns({"n": letter_count})
        _check(self.filled(self.db.open_table(table.name), "n"), [2, 1, 3])
        assert table.name in self.db.table_names(limit=10_000)
        self.db.drop_table(table.name)
        assert table.name not in self.db.table_names(limit=10_000)

    def scenario_column_of_a_view(self) -> None:
        view = self.db.create_materialized_view(
            _name(), self.table().search(None).select({"id": "id", "text": "text"})
        )
        self.refreshed(view)
        view.add_columns({"n": word_count})
        _check(self.filled(view, "n"), [2, 1, 3])

    def scenario_list_of_jobs(self) -> None:
        table = self.table()
        table.add_columns({"n": word_count})
        self.filled(table, "n")
        (job,) = list(self.db.list_jobs(table_name=table.name))
        assert job.status == "DONE", job

    def filled(self, table: Any, column: str, **options: Any) -> list[Any]:
        table.backfill_async(column, **options).result(timeout=WAIT_SECONDS)
        return _column(table, column)

    def refreshed(self, view: Any) -> Any:
        view.refresh_async().result(timeout=WAIT_SECONDS)
        return view

    def make_view(self, query: Any, function: Any) -> Any:
        return self.db.create_udtf_view(_name(), query, function)


def _name() -> str:
    return f"t{uuid4().hex[:10]}"


def _column(table: Any, column: str) -> list[Any]:
    table.checkout_latest()
    rows = table.to_arrow().sort_by("id")
    return rows[column].to_pylist()


def _check(found: Any, expected: list[Any], *columns: str) -> None:
    if columns:
        found.checkout_latest()
        rows = found.to_arrow()
        found = sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True))
    assert found == expected, f"{found} is not {expected}"


def main(url: str, *wanted: str) -> int:
    scenarios = Scenarios(url)
    names = [name for name in dir(scenarios) if name.startswith("scenario_")]
    failures = 0
    for name in names:
        title = name.removeprefix("scenario_").replace("_", " ")
        if wanted and not any(word in title for word in wanted):
            continue
        began_at = monotonic()
        run: Callable[[], None] = getattr(scenarios, name)
        try:
            run()
        except Exception:  # noqa: BLE001  # whatever happens is how this one ended
            failures += 1
            print(f"FAILED  {title}", flush=True)
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"passed  {title} ({monotonic() - began_at:.1f} s)", flush=True)
    print(f"geneva {geneva.__version__}: {failures} scenarios failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
