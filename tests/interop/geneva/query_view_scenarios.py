"""Views of queries of Geneva's own client: run by `make interop`, in an environment of its own."""

# mypy: ignore-errors
# Nothing is known about the client's types where they are checked. Without postponed annotations: the client
# tells from them what a function takes.

import sys
import warnings
from typing import Any, NamedTuple

warnings.filterwarnings("ignore")

import geneva  # noqa: E402
import pyarrow as pa  # noqa: E402

from tests.interop.geneva.client import (  # noqa: E402
    OPTIONS,
    Calls,
    Scenarios,
    check,
    message_of,
    row,
    rows_of,
    run,
    wait_for,
)


def counter(calls: Calls) -> Any:
    note = calls.note

    @geneva.udf
    def word_count(text: str) -> int:
        note(text)
        return len(text.split())

    return word_count


class QueryViewScenarios(Scenarios):
    def scenario_query_view_is_followed_row_by_row(self) -> None:
        self.follow(self.table())

    def scenario_query_view_of_a_table_with_stable_row_ids_is_followed_row_by_row(self) -> None:
        self.follow(self.stable_table())

    def follow(self, table: Any) -> None:
        calls = Calls()
        query = (
            table.search(None).select({"id": "id", "twice": "id * 2", "n": counter(calls)}).where("id > 1")
        )
        view = self.query_view(query)
        check((rows_of(view, "id"), calls.take()), ([], []))
        check(self.refreshed(view), [(2, 4, 1), (3, 6, 3)], "id", "twice", "n")
        check(calls.take(), ["c", "d e f"])
        table.add(row(4, "g h"))
        check(self.refreshed(view), [(2, 4, 1), (3, 6, 3), (4, 8, 2)], "id", "twice", "n")
        check(calls.take(), ["g h"])
        table.update(where="id = 2", values={"text": "x y z"})
        check(self.refreshed(view), [(2, 4, 3), (3, 6, 3), (4, 8, 2)], "id", "twice", "n")
        check(calls.take(), ["x y z"])
        table.delete("id = 3")
        check(self.refreshed(view), [(2, 4, 3), (4, 8, 2)], "id", "twice", "n")
        check(calls.take(), [])
        self.unchanged(view, calls)

    def scenario_query_view_and_rows_that_enter_or_leave_its_filter(self) -> None:
        calls, table = Calls(), self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(calls)}).where("id > 1"))
        self.refreshed(view)
        calls.take()
        table.update(where="id = 2", values={"id": -2})
        table.update(where="id = 1", values={"id": 10})
        check(self.refreshed(view), [(3, 3), (10, 2)], "id", "n")
        check(calls.take(), ["a b"])

    def scenario_query_view_and_compaction(self) -> None:
        calls, table = Calls(), self.stable_table()
        table.add(row(4, "g h"))
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(calls)}))
        self.refreshed(view)
        calls.take()
        table.optimize()
        self.unchanged(view, calls)
        table.add(row(5, "i"))
        check(self.refreshed(view), [(1, 2), (2, 1), (3, 3), (4, 2), (5, 1)], "id", "n")
        check(calls.take(), ["i"])

    def scenario_query_view_and_compaction_that_moves_row_ids(self) -> None:
        table = self.table()
        table.add(row(4, "g h"))
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(Calls())}))
        self.refreshed(view)
        table.delete("id = 1")
        table.optimize()
        check(self.refreshed(view), [(2, 1), (3, 3), (4, 2)], "id", "n")

    def scenario_query_view_and_columns_it_does_not_read(self) -> None:
        calls, table = Calls(), self.stable_table()
        view = self.query_view(table.search(None).select({"text": "text", "n": counter(calls)}))
        self.refreshed(view)
        calls.take()
        table.update(where="id = 1", values={"id": 100})
        check(self.refreshed(view), [("a b", 2), ("c", 1), ("d e f", 3)], "text", "n")
        check(calls.take(), [])

    def scenario_query_view_back_and_forth(self) -> None:
        calls, table = Calls(), self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(calls)}))
        first = table.version
        table.add(row(4, "g h"))
        table.update(where="id = 1", values={"text": "only now three"})
        table.delete("id = 2")
        check(self.refreshed(view), [(1, 3), (3, 3), (4, 2)], "id", "n")
        check(self.refreshed(view, src_version=first), [(1, 2), (2, 1), (3, 3)], "id", "n")
        check(self.refreshed(view), [(1, 3), (3, 3), (4, 2)], "id", "n")
        assert "no version 999" in message_of(lambda: self.refreshed(view, src_version=999))

    def scenario_query_view_filled_when_created(self) -> None:
        query = self.table().search(None).select({"id": "id", "n": counter(Calls())})
        view = self.query_view(query, with_no_data=False)
        wait_for(lambda: rows_of(view, "id", "n") == [(1, 2), (2, 1), (3, 3)], "the filling of the view")

    def scenario_query_view_that_refreshes_itself(self) -> None:
        calls, table = Calls(), self.table()
        query = table.search(None).select({"id": "id", "n": counter(calls)}).where("id > 1")
        view = self.query_view(query, auto_refresh=True)
        wait_for(lambda: rows_of(view, "id", "n") == [(2, 1), (3, 3)], "the filling of the view")
        table.add(row(4, "g h"))
        wait_for(lambda: rows_of(view, "id", "n") == [(2, 1), (3, 3), (4, 2)], "the refresh of the view")
        check(calls.take(), ["c", "d e f", "g h"])

    def scenario_query_view_of_all_columns_within_limits(self) -> None:
        table = self.table()
        view = self.query_view(table.search(None).offset(1).limit(1))
        check(self.refreshed(view), [(2, "c")], "id", "text")
        table.delete("id = 1")
        check(self.refreshed(view), [(3, "d e f")], "id", "text")

    def scenario_query_view_of_nothing(self) -> None:
        table = self.table()
        table.delete("id > 0")
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(Calls())}))
        check(self.refreshed(view), [], "id", "n")
        table.add(row(4, "g h"))
        check(self.refreshed(view), [(4, 2)], "id", "n")

    def scenario_query_view_of_a_view(self) -> None:
        calls, table = Calls(), self.table()
        lower = self.query_view(table.search(None).select({"id": "id", "text": "text"}).where("id > 1"))
        self.refreshed(lower)
        upper = self.query_view(lower.search(None).select({"id": "id", "n": counter(calls)}))
        check(self.refreshed(upper), [(2, 1), (3, 3)], "id", "n")
        calls.take()
        table.add(row(4, "g h"))
        self.refreshed(lower)
        check(self.refreshed(upper), [(2, 1), (3, 3), (4, 2)], "id", "n")
        check(calls.take(), ["g h"])

    def scenario_query_view_with_a_column_of_its_users(self) -> None:
        table = self.table()
        view = self.query_view(table.search(None).select({"id": "id", "text": "text"}))
        self.refreshed(view)
        view.add_columns({"n": counter(Calls())})
        check(self.filled(view, "n"), [2, 1, 3])
        table.add(row(4, "g h"))
        check(self.refreshed(view), [(1, 2), (2, 1), (3, 3), (4, None)], "id", "n")
        check(self.filled(view, "n"), [2, 1, 3, 2])

    def scenario_query_view_and_options(self) -> None:
        table = self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(Calls())}))
        check(self.refreshed(view, **OPTIONS), [(1, 2), (2, 1), (3, 3)], "id", "n")
        assert len(view.to_lance().get_fragments()) > 1

    def scenario_what_the_client_foresees_of_a_refresh(self) -> None:
        table = self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(Calls())}))
        check(view.plan_refresh().total_rows_pending, 3)
        self.refreshed(view)
        view.checkout_latest()
        check(view.plan_refresh().has_work, False)
        table.add(row(4, "g h"))
        check(view.plan_refresh().total_rows_pending, 1)

    def scenario_values_of_any_shape(self) -> None:
        class Size(NamedTuple):
            words: int
            letters: int

        @geneva.udf
        def size(text: str) -> geneva.Columns[Size]:
            return Size(len(text.split()), len(text.replace(" ", "")))

        @geneva.udf(data_type=pa.list_(pa.float32(), 2))
        def vector(id: int) -> list[float]:
            return [id, id / 2]

        view = self.query_view(self.table().search(None).select({"s": size, "id": "id", "v": vector}))
        expected = [
            (1, {"words": 2, "letters": 2}, [1.0, 0.5]),
            (2, {"words": 1, "letters": 1}, [2.0, 1.0]),
            (3, {"words": 3, "letters": 3}, [3.0, 1.5]),
        ]
        check(self.refreshed(view), expected, "id", "s", "v")

    def scenario_source_that_is_merged_into_and_overwritten(self) -> None:
        calls, table = Calls(), self.stable_table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(calls)}))
        self.refreshed(view)
        calls.take()
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.table({"id": [2, 5], "text": ["m m", "n"]}))
        check(self.refreshed(view), [(1, 2), (2, 2), (3, 3), (5, 1)], "id", "n")
        check(calls.take(), ["m m", "n"])
        table.add(row(7, "o"), mode="overwrite")
        check(self.refreshed(view), [(7, 1)], "id", "n")

    def scenario_refreshes_that_cannot_be(self) -> None:
        view = self.query_view(self.table().search(None).select({"id": "id"}))
        for option, value, problem in (
            ("cluster", "nowhere", "no cluster 'nowhere'"),
            ("manifest", "nobody", "there is no 'nobody'"),
            ("concurrency", 0, "at least 1"),
        ):
            said = message_of(lambda option=option, value=value: self.refreshed(view, **{option: value}))
            assert option in said, said
            assert problem in said, said

    def scenario_waiting_for_a_refresh(self) -> None:
        table = self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": counter(Calls())}))
        view.refresh()
        check(view, [(1, 2), (2, 1), (3, 3)], "id", "n")
        (job,) = self.db.list_jobs(table_name=view.name)
        check((job.status, job.job_id), ("DONE", self.db.get_job(job.job_id).job_id))

    def scenario_view_whose_function_fails(self) -> None:
        @geneva.udf
        def picky(text: str) -> int:
            if text == "bad":
                raise ValueError(f"cannot read {text!r}")
            return len(text)

        table = self.table()
        view = self.query_view(table.search(None).select({"id": "id", "n": picky}))
        self.refreshed(view)
        table.add(row(4, "bad"))
        said = message_of(lambda: self.refreshed(view))
        assert "cannot read 'bad'" in said, said
        check(view, [(1, 3), (2, 1), (3, 5)], "id", "n")
        table.update(where="id = 4", values={"text": "good"})
        check(self.refreshed(view), [(1, 3), (2, 1), (3, 5), (4, 4)], "id", "n")


def main(url: str, *wanted: str) -> int:
    db = geneva.connect("db://lake", host_override=url, api_key="k")
    return run(QueryViewScenarios(db), f"geneva {geneva.__version__}", wanted)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
