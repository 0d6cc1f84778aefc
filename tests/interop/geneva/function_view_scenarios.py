"""Views of chunkers and table functions of Geneva's own client: run by `make interop`, like the others."""

# mypy: ignore-errors
# Nothing is known about the client's types where they are checked. Without postponed annotations: the client
# tells from them what a function takes.

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

warnings.filterwarnings("ignore")

import geneva  # noqa: E402
import pyarrow as pa  # noqa: E402

from tests.interop.geneva.client import (  # noqa: E402
    OPTIONS,
    STABLE,
    Calls,
    Scenarios,
    check,
    message_of,
    new_name,
    row,
    rows_of,
    run,
    values,
    wait_for,
)

WORDS = [(1, "a", 0), (1, "b", 1), (2, "c", 0), (3, "d", 0), (3, "e", 1), (3, "f", 2)]
KEYS = pa.schema([("key", pa.string()), ("rows", pa.int64())])


class Word(NamedTuple):
    word: str
    position: int


def splitter(calls: Calls) -> Any:
    note = calls.note

    @geneva.chunker
    def words(text: str) -> Iterator[Word]:
        note(text)
        for position, word in enumerate(text.split()):
            yield Word(word, position)

    return words


def batch_splitter(calls: Calls) -> Any:
    note = calls.note

    @geneva.chunker(batch=True, output_schema=pa.schema([("word", pa.string())]))
    def words(text: pa.Array, __source_row_id: pa.Array) -> pa.RecordBatch:
        found = []
        for source, line in zip(__source_row_id.to_pylist(), text.to_pylist(), strict=True):
            note(line)
            found += [(source, word) for word in line.split()]
        return pa.RecordBatch.from_pydict(
            {"word": [word for _, word in found], "__source_row_id": [source for source, _ in found]}
        )

    return words


def summary(calls: Calls) -> Any:
    note = calls.note

    @geneva.udtf(output_schema=pa.schema([("ids", pa.string()), ("letters", pa.int64())]))
    def summed(source: Any) -> Iterator[pa.RecordBatch]:
        note("all")
        found = source.to_arrow().sort_by("id")
        ids = ",".join(map(str, found["id"].to_pylist()))
        letters = sum(len(text.replace(" ", "")) for text in found["text"].to_pylist())
        yield pa.RecordBatch.from_pydict({"ids": [ids], "letters": [letters]})

    return summed


def key_counter(calls: Calls, **options: Any) -> Any:
    note = calls.note

    @geneva.udtf(output_schema=KEYS, **options)
    class Counts:
        def __call__(self, source: Any) -> Iterator[pa.RecordBatch]:
            keys = source.to_arrow()["key"].to_pylist()
            note(",".join(sorted(set(keys))))
            for key in sorted(set(keys)):
                yield pa.RecordBatch.from_pydict({"key": [key], "rows": [keys.count(key)]})

    return Counts()


class FunctionViewScenarios(Scenarios):
    def scenario_chunker_view_that_refreshes_itself(self) -> None:
        table = self.table()
        query = table.search(None).select(["id", "text"])
        view = self.function_view(query, splitter(Calls()), auto_refresh=True)
        wait_for(lambda: rows_of(view, "id", "word", "position") == WORDS, "the filling of the view")
        table.delete("id > 1")
        wait_for(lambda: rows_of(view, "id", "word", "position") == WORDS[:2], "the refresh of the view")

    def scenario_chunker_view_is_followed_row_by_row(self) -> None:
        self.follow_chunker(self.table())

    def scenario_chunker_view_of_a_table_with_stable_row_ids_is_followed(self) -> None:
        check(self.follow_chunker(self.stable_table()), [])

    def follow_chunker(self, table: Any) -> list[str]:
        """Gives the calls that a compaction of the source costs."""
        calls = Calls()
        view = self.function_view(table.search(None).select(["id", "text"]), splitter(calls))
        check((rows_of(view, "id"), calls.take()), ([], []))
        check(self.refreshed(view), WORDS, "id", "word", "position")
        check(calls.take(), ["a b", "c", "d e f"])
        table.add(row(4, "g"))
        check(self.refreshed(view), [*WORDS, (4, "g", 0)], "id", "word", "position")
        check(calls.take(), ["g"])
        table.update(where="id = 3", values={"text": "new words"})
        expected = [*WORDS[:3], (3, "new", 0), (3, "words", 1), (4, "g", 0)]
        check(self.refreshed(view), expected, "id", "word", "position")
        check(calls.take(), ["new words"])
        table.delete("id = 1")
        check(self.refreshed(view), expected[2:], "id", "word", "position")
        check(calls.take(), [])
        self.unchanged(view, calls)
        table.optimize()
        check(self.refreshed(view), expected[2:], "id", "word", "position")
        return calls.take()

    def scenario_chunker_of_batches_is_followed_row_by_row(self) -> None:
        calls, table = Calls(), self.table()
        view = self.function_view(table.search(None).select(["id", "text"]), batch_splitter(calls))
        self.refreshed(view)
        check(calls.take(), ["a b", "c", "d e f"])
        table.add(row(4, "g"))
        table.update(where="id = 2", values={"text": "x y"})
        table.delete("id = 3")
        expected = [(1, "a"), (1, "b"), (2, "x"), (2, "y"), (4, "g")]
        check(self.refreshed(view), expected, "id", "word")
        check(calls.take(), ["g", "x y"])

    def scenario_chunker_and_rows_it_makes_nothing_of(self) -> None:
        calls, table = Calls(), self.table()
        table.add(row(4, " "))
        view = self.function_view(table.search(None).select(["id", "text"]), splitter(calls))
        check(self.refreshed(view), WORDS, "id", "word", "position")
        check(len(calls.take()), 4)
        self.unchanged(view, calls)
        table.add(row(5, "g"))
        check(self.refreshed(view), [*WORDS, (5, "g", 0)], "id", "word", "position")
        check(calls.take(), ["g"])
        table.update(where="id = 4", values={"text": "z"})
        check(self.refreshed(view), [*WORDS, (4, "z", 0), (5, "g", 0)], "id", "word", "position")
        check(calls.take(), ["z"])
        table.update(where="id = 1", values={"text": " "})
        check(self.refreshed(view), [*WORDS[2:], (4, "z", 0), (5, "g", 0)], "id", "word", "position")

    def scenario_chunker_view_with_a_filter(self) -> None:
        calls, table = Calls(), self.table()
        query = table.search(None).select(["id", "text"]).where("id > 1")
        view = self.function_view(query, splitter(calls))
        check(self.refreshed(view), WORDS[2:], "id", "word", "position")
        table.update(where="id = 2", values={"id": 0})
        check(self.refreshed(view), WORDS[3:], "id", "word", "position")
        check(calls.take(), ["c", "d e f"])

    def scenario_chunker_view_with_a_limited_output(self) -> None:
        calls, table = Calls(), self.table()
        view = self.function_view(table.search(None).select(["id", "text"]), splitter(calls))
        check(self.refreshed(view, output_limit=4), WORDS[:4], "id", "word", "position")
        check(self.refreshed(view, output_limit=2), WORDS[:2], "id", "word", "position")
        check(self.refreshed(view, output_limit=5), WORDS[:5], "id", "word", "position")
        table.delete("id = 1")
        check(self.refreshed(view, output_limit=3), WORDS[2:5], "id", "word", "position")
        check(self.refreshed(view), WORDS[2:], "id", "word", "position")
        calls.take()
        self.unchanged(view, calls)

    def scenario_chunker_view_and_options(self) -> None:
        view = self.function_view(self.table().search(None).select(["id", "text"]), splitter(Calls()))
        check(self.refreshed(view, **OPTIONS), WORDS, "id", "word", "position")
        assert len(view.to_lance().get_fragments()) > 2

    def scenario_table_function_view_and_options(self) -> None:
        view = self.function_view(self.table().search(None), summary(Calls()))
        check(self.refreshed(view, **OPTIONS), [("1,2,3", 6)], "ids", "letters")

    def scenario_table_function_view_filled_when_created(self) -> None:
        view = self.function_view(self.table().search(None), summary(Calls()), with_no_data=False)
        wait_for(lambda: rows_of(view, "ids", "letters") == [("1,2,3", 6)], "the filling of the view")

    def scenario_table_function_view_that_refreshes_itself(self) -> None:
        table = self.table()
        view = self.function_view(table.search(None), summary(Calls()), auto_refresh=True)
        wait_for(lambda: rows_of(view, "ids", "letters") == [("1,2,3", 6)], "the filling of the view")
        table.delete("id = 2")
        wait_for(lambda: rows_of(view, "ids", "letters") == [("1,3", 5)], "the refresh of the view")

    def scenario_limited_output_of_other_views(self) -> None:
        table = self.table()
        for view in (
            self.query_view(table.search(None).select({"id": "id"})),
            self.function_view(table.search(None), summary(Calls())),
        ):
            said = message_of(lambda view=view: self.refreshed(view, output_limit=1))
            assert "output_limit" in said, said

    def scenario_chunker_view_back_and_forth(self) -> None:
        table = self.table()
        view = self.function_view(table.search(None).select(["id", "text"]), splitter(Calls()))
        first = table.version
        self.refreshed(view)
        table.update(where="id = 1", values={"text": "new"})
        table.add(row(4, "g"))
        later = [(1, "new", 0), *WORDS[2:], (4, "g", 0)]
        check(self.refreshed(view), later, "id", "word", "position")
        check(self.refreshed(view, src_version=first), WORDS, "id", "word", "position")
        check(self.refreshed(view), later, "id", "word", "position")

    def scenario_chunker_view_with_a_column_of_its_users(self) -> None:
        @geneva.udf
        def shouted(word: str) -> str:
            return word.upper()

        table = self.table()
        view = self.function_view(table.search(None).select(["id", "text"]), splitter(Calls()))
        self.refreshed(view)
        view.add_columns({"loud": shouted})
        check(sorted(self.filled(view, "loud")), ["A", "B", "C", "D", "E", "F"])
        table.add(row(4, "g"))
        table.update(where="id = 1", values={"text": "x"})
        table.delete("id = 3")
        expected = [(1, "x", None), (2, "c", "C"), (4, "g", None)]
        check(self.refreshed(view), expected, "id", "word", "loud")
        check(self.filled(view, "loud"), ["X", "C", "G"])

    def scenario_chunker_view_filled_when_created(self) -> None:
        query = self.table().search(None).select(["id", "text"])
        view = self.function_view(query, splitter(Calls()), with_no_data=False)
        wait_for(lambda: rows_of(view, "id", "word", "position") == WORDS, "the filling of the view")

    def scenario_chunker_view_with_inherited_inputs(self) -> None:
        @geneva.chunker(inherit_input_columns=True)
        def words(text: str) -> Iterator[Word]:
            for position, word in enumerate(text.split()):
                yield Word(word, position)

        table = self.table()
        view = self.function_view(table.search(None).select(["id", "text"]), words)
        table.update(where="id = 1", values={"text": "x"})
        expected = [("x", "x"), ("c", "c"), ("d e f", "d"), ("d e f", "e"), ("d e f", "f")]
        check(self.refreshed(view), expected, "text", "word")

    def scenario_table_function_view_is_followed(self) -> None:
        self.follow_table_function(self.table())

    def scenario_table_function_view_of_a_table_with_stable_row_ids_is_followed(self) -> None:
        check(self.follow_table_function(self.stable_table()), [])

    def follow_table_function(self, table: Any) -> list[str]:
        """Gives the calls that a compaction of the source costs."""
        calls = Calls()
        view = self.function_view(table.search(None), summary(calls))
        check((rows_of(view, "ids"), calls.take()), ([], []))
        check(self.refreshed(view), [("1,2,3", 6)], "ids", "letters")
        table.add(row(4, "gh"))
        check(self.refreshed(view), [("1,2,3,4", 8)], "ids", "letters")
        table.update(where="id = 1", values={"text": "abcde"})
        check(self.refreshed(view), [("1,2,3,4", 11)], "ids", "letters")
        table.delete("id = 3")
        check(self.refreshed(view), [("1,2,4", 8)], "ids", "letters")
        check(calls.take(), ["all"] * 4)
        self.unchanged(view, calls)
        table.optimize()
        check(self.refreshed(view), [("1,2,4", 8)], "ids", "letters")
        return calls.take()

    def scenario_table_function_view_back_and_forth(self) -> None:
        table = self.table()
        view = self.function_view(table.search(None).where("id < 4"), summary(Calls()))
        first = table.version
        table.delete("id = 2")
        check(self.refreshed(view), [("1,3", 5)], "ids", "letters")
        check(self.refreshed(view, src_version=first), [("1,2,3", 6)], "ids", "letters")
        table.add(row(4, "gh"))
        check(self.refreshed(view), [("1,3", 5)], "ids", "letters")

    def scenario_table_function_view_with_a_column_of_its_users(self) -> None:
        @geneva.udf
        def doubled(rows: int) -> int:
            return rows * 2

        table = self.db.create_table(new_name(), pa.table({"key": ["u", "v", "u"]}))
        view = self.function_view(table.search(None), key_counter(Calls(), input_columns=["key"]))
        self.refreshed(view)
        view.add_columns({"twice": doubled})
        view.backfill_async("twice").result(timeout=240)
        check(view, [("u", 2, 4), ("v", 1, 2)], "key", "rows", "twice")
        table.add(pa.table({"key": ["w"]}))
        check(self.refreshed(view), [("u", 2, 4), ("v", 1, 2), ("w", 1, None)], "key", "rows", "twice")

    def scenario_table_function_by_partitions_is_followed(self) -> None:
        calls = Calls()
        rows = pa.table({"id": [1, 2, 3], "key": ["u", "v", "u"]})
        table = self.db.create_table(new_name(), rows, storage_options=STABLE)
        function = key_counter(calls, input_columns=["key"], partition_by="key")
        view = self.function_view(table.search(None), function)
        check(self.refreshed(view), [("u", 2), ("v", 1)], "key", "rows")
        check(calls.take(), ["u", "v"])
        table.add(pa.table({"id": [4, 5], "key": ["w", "v"]}))
        check(self.refreshed(view), [("u", 2), ("v", 2), ("w", 1)], "key", "rows")
        check(calls.take(), ["v", "w"])
        table.update(where="id = 1", values={"key": "w"})
        check(self.refreshed(view), [("u", 1), ("v", 2), ("w", 2)], "key", "rows")
        check(calls.take(), ["u", "w"])
        table.delete("key = 'v'")
        check(self.refreshed(view), [("u", 1), ("w", 2)], "key", "rows")
        check(calls.take(), [])
        table.optimize()
        self.unchanged(view, calls)

    def scenario_table_function_by_partitions_of_an_index(self) -> None:
        """The client does not send by which index: the function is called once, with all."""
        keys = ["u", "v"] * 150
        vectors = [[float(n), float(key == "u")] for n, key in enumerate(keys)]
        rows = pa.table({"key": keys, "vector": pa.array(vectors, pa.list_(pa.float32(), 2))})
        table = self.db.create_table(new_name(), rows)
        table.to_lance().create_index("vector", "IVF_FLAT", num_partitions=3)
        table.checkout_latest()
        function = key_counter(Calls(), partition_by_indexed_column="vector")
        view = self.function_view(table.search(None), function)
        found = rows_of(self.refreshed(view), "key", "rows")
        totals = {key: sum(count for each, count in found if each == key) for key in ("u", "v")}
        check(totals, {"u": 150, "v": 150})

    def scenario_view_is_opened_again_and_dropped(self) -> None:
        table = self.table()
        name = self.function_view(table.search(None).select(["id", "text"]), splitter(Calls())).name
        check(self.refreshed(self.db.open_table(name)), WORDS, "id", "word", "position")
        assert name in self.db.table_names(limit=10_000)
        self.db.drop_table(name)
        assert name not in self.db.table_names(limit=10_000)
        check(values(table, "id"), [1, 2, 3])


def main(url: str, *wanted: str) -> int:
    db = geneva.connect("db://lake", host_override=url, api_key="k")
    return run(FunctionViewScenarios(db), f"geneva {geneva.__version__}", wanted)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
