"""Changes of rows through the client generated from the specification, on main and on a branch."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import ApiClient, ApiException, DataApi
from lance_namespace_urllib3_client.models import (
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    InsertIntoTableResponse,
    MergeInsertIntoTableResponse,
    UpdateTableRequest,
    UpdateTableResponse,
)

from tests.protocol.generated import refusal
from tests.protocol.test_refused_expressions import EXPRESSIONS
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

MERGE = {"when_matched_update_all": True, "when_not_matched_insert_all": True}
NESTED = pa.table(
    {
        "id": [1, 2],
        "a b": [10, 20],
        "meta": pa.array([{"x": 1, "a.b": 5}, None], pa.struct([("x", pa.int64()), ("a.b", pa.int64())])),
    }
)


@pytest.fixture
def data(generated: ApiClient) -> DataApi:
    return DataApi(generated)


class Branch:
    """One branch of a table, changed with the generated client and read by pylance."""

    def __init__(self, table: TableOnWire, name: str, data: DataApi) -> None:
        self.table = table
        self.name = name
        self.asked = None if name == "main" else name
        self._data = data

    @property
    def id(self) -> str:
        return "$".join(self.table.levels)

    def rows(self) -> list[dict[str, Any]]:
        place = self.table.directory if self.name == "main" else self.table.directory / "tree" / self.name
        found = lance.dataset(place).to_table(columns=["id", "text"])
        return sorted(found.to_pylist(), key=lambda row: int(row["id"]))

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]

    def insert(self, rows: pa.Table, **options: Any) -> InsertIntoTableResponse:
        return self._data.insert_into_table(self.id, stream(rows), branch=self.asked, **options)

    def merge(self, rows: pa.Table, **options: Any) -> MergeInsertIntoTableResponse:
        asked = {"on": ["id"], "branch": self.asked, **options}
        return self._data.merge_insert_into_table(self.id, body=stream(rows), **asked)

    def update(self, *updates: list[str], **options: Any) -> UpdateTableResponse:
        request = UpdateTableRequest(updates=list(updates), branch=self.asked, **options)
        return self._data.update_table(self.id, request)

    def delete(self, predicate: str) -> DeleteFromTableResponse:
        return self._data.delete_from_table(
            self.id, DeleteFromTableRequest(predicate=predicate, branch=self.asked)
        )


@pytest.fixture(params=["main", "dev"])
def branch(request: pytest.FixtureRequest, table: TableOnWire, rest: RestNamespace, data: DataApi) -> Any:
    """Rows 1 to 3 on a branch that pylance made; whatever is done to it, the other one stays as it was."""
    lance.dataset(namespace_client=rest, table_id=table.levels).create_branch("dev")
    other = Branch(table, "main" if request.param == "dev" else "dev", data)
    before = other.rows()
    yield Branch(table, request.param, data)
    assert other.rows() == before


@pytest.mark.operation("InsertIntoTable", client="urllib3")
def test_rows_are_appended(branch: Branch) -> None:
    done = branch.insert(some_rows(4, 2))
    assert (done.num_inserted_rows, done.version) == (2, 2)
    assert branch.ids() == [1, 2, 3, 4, 5]


@pytest.mark.operation("InsertIntoTable", client="urllib3")
@pytest.mark.parametrize("mode", ["overwrite", "Overwrite", "OVERWRITE"])
def test_rows_are_overwritten(branch: Branch, mode: str) -> None:
    assert branch.insert(some_rows(9, 1), mode=mode).num_inserted_rows == 1
    assert branch.ids() == [9]


@pytest.mark.operation("InsertIntoTable", client="urllib3")
def test_an_insert_that_does_not_fit_is_refused(branch: Branch) -> None:
    for rows in (pa.table({"id": ["x"]}), pa.table({"id": [1], "other": [1]})):
        with pytest.raises(ApiException) as raised:
            branch.insert(rows)
        assert refusal(raised) == (400, 20)
    assert branch.ids() == [1, 2, 3]


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_rows_are_merged(branch: Branch) -> None:
    rows = some_rows(3, 2).set_column(1, "text", pa.array(["new 3", "new 4"]))
    done = branch.merge(rows, **MERGE)
    assert (done.num_updated_rows, done.num_inserted_rows, done.num_deleted_rows) == (1, 1, 0)
    assert done.version == 2
    assert [row["text"] for row in branch.rows()] == ["row 1", "row 2", "new 3", "new 4"]


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_rows_are_merged_by_several_columns(branch: Branch) -> None:
    rows = pa.concat_tables([some_rows(1, 1), some_rows(2, 1).set_column(1, "text", pa.array(["new"]))])
    done = branch.merge(rows, on=["id", "text"], when_not_matched_insert_all=True, use_index=True)
    assert (done.num_updated_rows, done.num_inserted_rows) == (0, 1)
    assert branch.ids() == [1, 2, 2, 3]


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_a_condition_chooses_the_rows_to_update(branch: Branch) -> None:
    rows = some_rows(1, 3).set_column(1, "text", pa.array(["new"] * 3))
    done = branch.merge(rows, when_matched_update_all_filt="target.id > 2", timeout="30s")
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 0)
    assert [row["text"] for row in branch.rows()] == ["row 1", "row 2", "new"]


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_rows_that_are_not_in_the_source_are_deleted(branch: Branch) -> None:
    done = branch.merge(
        some_rows(1, 1), when_not_matched_insert_all=True, when_not_matched_by_source_delete_filt="id > 2"
    )
    assert (done.num_deleted_rows, branch.ids()) == (1, [1, 2])
    done = branch.merge(
        some_rows(1, 1), when_not_matched_insert_all=True, when_not_matched_by_source_delete=True
    )
    assert (done.num_deleted_rows, branch.ids()) == (1, [1])


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_some_columns_are_merged(branch: Branch) -> None:
    done = branch.merge(pa.table({"id": [2], "text": ["new"]}), when_matched_update_all=True)
    assert done.num_updated_rows == 1
    assert [row["text"] for row in branch.rows()] == ["row 1", "new", "row 3"]


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (some_rows(), {"on": ["nowhere"], **MERGE}, (404, 12)),
        (some_rows(), {"on": ["id", "nowhere"], **MERGE}, (404, 12)),
        (some_rows().drop_columns(["text"]), {"on": ["text"], **MERGE}, (400, 13)),
        (some_rows(), {}, (400, 13)),
        (pa.concat_tables([some_rows(), some_rows()]), MERGE, (400, 13)),
        (some_rows(), {"when_matched_update_all_filt": "target.nowhere = 1"}, (400, 13)),
        (some_rows(), {"when_matched_update_all_filt": "1; DROP TABLE t"}, (400, 13)),
        (some_rows(), {**MERGE, "timeout": "soon"}, (400, 13)),
        (pa.table({"id": ["1"], "text": ["x"]}), {"when_matched_update_all": True}, (400, 20)),
    ],
)
def test_a_merge_that_makes_no_sense_is_refused(
    branch: Branch, rows: pa.Table, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    with pytest.raises(ApiException) as raised:
        branch.merge(rows, **options)
    assert refusal(raised) == expected
    assert branch.ids() == [1, 2, 3]


@pytest.mark.operation("UpdateTable", client="urllib3")
def test_rows_are_updated(branch: Branch) -> None:
    done = branch.update(["text", "concat(text, '!')"], ["id", "id + 10"], predicate="id > 1")
    assert (done.updated_rows, done.version, done.properties) == (2, 2, {})
    assert [(row["id"], row["text"]) for row in branch.rows()] == [
        (1, "row 1"),
        (12, "row 2!"),
        (13, "row 3!"),
    ]


@pytest.mark.operation("UpdateTable", client="urllib3")
def test_all_rows_are_updated_and_properties_kept(branch: Branch, http: httpx.Client) -> None:
    assert branch.update(["text", "'x'"], properties={"a": "1"}).properties == {"a": "1"}
    done = branch.update(["text", "'y'"], predicate="id > 99", properties={"b": "2"})
    assert (done.updated_rows, done.properties) == (0, {"a": "1", "b": "2"})
    assert branch.table.asked("describe")["properties"] == {"a": "1", "b": "2"}
    assert {row["text"] for row in branch.rows()} == {"x"}


@pytest.mark.operation("UpdateTable", client="urllib3")
@pytest.mark.parametrize(
    ("updates", "predicate", "expected"),
    [
        ([["nowhere", "1"]], None, (404, 12)),
        ([["id.x", "1"]], None, (404, 12)),
        ([["id", "nowhere + 1"]], None, (400, 13)),
        ([["id", "1 +"]], None, (400, 13)),
        ([["id", "'x'"]], None, (400, 13)),
        ([["id", "10 / (id - 1)"]], None, (400, 13)),
        ([["id", "cast(text as bigint)"]], None, (400, 13)),
        ([["id", "1; DROP TABLE t"]], None, (400, 13)),
        ([["id", "(select 1)"]], None, (400, 13)),
        ([["id", "id + 1"], ["text", "cast(id AS string)"]], None, (400, 13)),
        ([["id", "1"]], "nowhere = 1", (400, 13)),
        ([["id", "1"]], "id = 1 -- all", (400, 13)),
        ([], None, (400, 13)),
    ],
)
def test_an_update_that_makes_no_sense_is_refused(
    branch: Branch, updates: list[list[str]], predicate: str | None, expected: tuple[int, int]
) -> None:
    with pytest.raises(ApiException) as raised:
        branch.update(*updates, predicate=predicate)
    assert refusal(raised) == expected
    assert branch.ids() == [1, 2, 3]


@pytest.mark.operation("UpdateTable", client="urllib3")
def test_parts_of_columns_are_updated_by_their_paths(
    http: httpx.Client, namespace: str, data: DataApi
) -> None:
    table = TableOnWire(http, namespace, "nested")
    table.create(NESTED)
    updates = [["meta.`a.b`", "meta.x + id"], ["`a b`", "id"]]
    done = data.update_table("$".join(table.levels), UpdateTableRequest(updates=updates, predicate="id = 1"))
    assert done.updated_rows == 1
    rows = lance.dataset(table.directory).to_table().sort_by("id").to_pylist()
    assert rows[0] == {"id": 1, "a b": 1, "meta": {"x": 1, "a.b": 2}}
    assert rows[1] == {"id": 2, "a b": 20, "meta": None}


@pytest.mark.operation("DeleteFromTable", client="urllib3")
def test_rows_are_deleted(branch: Branch) -> None:
    assert branch.delete("id = 2 OR text = 'row 3'").version == 2
    assert branch.ids() == [1]
    assert branch.delete("true").version == 3
    assert branch.ids() == []


@pytest.mark.operation("DeleteFromTable", client="urllib3")
@pytest.mark.parametrize(
    "predicate", ["", "  ", "nowhere = 1", "id", "id = ", "id = 1; true", "10 / (id - 1) > 1"]
)
def test_a_delete_that_makes_no_sense_is_refused(branch: Branch, predicate: str) -> None:
    with pytest.raises(ApiException) as raised:
        branch.delete(predicate)
    assert refusal(raised) == (400, 13)
    assert branch.ids() == [1, 2, 3]


@pytest.mark.operation(
    "InsertIntoTable", "MergeInsertIntoTable", "UpdateTable", "DeleteFromTable", client="http"
)
@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("insert?branch=nowhere", {"content": stream(some_rows())}),
        (
            "merge_insert?branch=nowhere&on=id&when_not_matched_insert_all=true",
            {"content": stream(some_rows(9))},
        ),
        ("update", {"json": {"branch": "nowhere", "updates": [["id", "1"]]}}),
        ("delete", {"json": {"branch": "nowhere", "predicate": "true"}}),
        ("query", {"json": {"branch": "nowhere", "k": 1}}),
        ("count_rows", {"json": {"branch": "nowhere"}}),
        ("explain_plan", {"json": {"branch": "nowhere", "query": {"k": 1}}}),
        ("analyze_plan", {"json": {"branch": "nowhere", "k": 1}}),
    ],
)
def test_an_unknown_branch_never_means_main(
    unchanged: TableOnWire, action: str, options: dict[str, Any]
) -> None:
    check_refusal(unchanged.post(action, **options), 404, 22)


@pytest.fixture
def declared(http: httpx.Client, namespace: str) -> TableOnWire:
    table = TableOnWire(http, namespace, "declared")
    table.asked("declare", {})
    return table


@pytest.mark.operation("InsertIntoTable", client="urllib3")
def test_an_insert_makes_a_declared_table(declared: TableOnWire, data: DataApi) -> None:
    done = Branch(declared, "main", data).insert(some_rows())
    assert (done.num_inserted_rows, done.version) == (3, 1)
    assert declared.asked("count_rows") == 3


@pytest.mark.operation("MergeInsertIntoTable", client="urllib3")
def test_a_merge_makes_a_declared_table(declared: TableOnWire, data: DataApi) -> None:
    made = Branch(declared, "main", data)
    with pytest.raises(ApiException) as raised:
        made.merge(some_rows(), on=["nowhere"], **MERGE)
    assert refusal(raised) == (404, 12)
    assert made.merge(some_rows(), **MERGE).num_inserted_rows == 3
    assert made.merge(some_rows(3, 2), **MERGE).num_inserted_rows == 1
    assert declared.asked("count_rows") == 4


@pytest.mark.operation("UpdateTable", "DeleteFromTable", "QueryTable", "CountTableRows", client="http")
@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("update", {"updates": [["id", "1"]]}),
        ("delete", {"predicate": "true"}),
        ("query", {"k": 1}),
        ("count_rows", {}),
        ("explain_plan", {"query": {"k": 1}}),
        ("analyze_plan", {"k": 1}),
    ],
)
def test_a_declared_table_has_no_rows_to_speak_of(declared: TableOnWire, action: str, body: Any) -> None:
    check_refusal(declared.post(action, body), 409, 19)


def together(*calls: Any) -> list[Any]:
    """What the calls give or raise, made at the same time."""
    results: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(number: int) -> None:
        start.wait()
        results[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.operation("InsertIntoTable", client="http")
def test_inserts_at_once_into_a_declared_table_all_land(declared: TableOnWire) -> None:
    def insert(first: int) -> httpx.Response:
        return declared.post("insert", content=stream(some_rows(first)))

    answers = together(*(lambda first=first: insert(first) for first in range(1, 13, 3)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert declared.asked("count_rows") == 12


@pytest.mark.operation(
    "InsertIntoTable", "MergeInsertIntoTable", "UpdateTable", "DeleteFromTable", client="http"
)
def test_changes_at_once_all_land(table: TableOnWire) -> None:
    """Nobody sees a conflict: appends, merges, updates and deletes are tried again inside."""

    def insert(first: int) -> httpx.Response:
        return table.post("insert", content=stream(some_rows(first)))

    def merge(first: int) -> httpx.Response:
        params = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
        return table.post("merge_insert", content=stream(some_rows(first)), params=params)

    answers = together(
        *(lambda first=first: insert(first) for first in (10, 20, 30)),
        *(lambda first=first: merge(first) for first in (40, 50)),
        lambda: table.post("update", {"updates": [["text", "'new'"]], "predicate": "id = 1"}),
        lambda: table.post("delete", {"predicate": "id = 2"}),
    )
    assert [answer.status_code for answer in answers] == [200] * 7, [answer.text for answer in answers]
    assert table.asked("count_rows") == 3 + 5 * 3 - 1
    assert table.asked("count_rows", {"predicate": "text = 'new'"}) == 1
    assert len({answer.json()["version"] for answer in answers}) == 7


@pytest.mark.operation("InsertIntoTable", "MergeInsertIntoTable", client="http")
@pytest.mark.parametrize("action", ["insert", "merge_insert?on=id&when_not_matched_insert_all=true"])
@pytest.mark.parametrize("body", [b"", b"nonsense", stream(some_rows(4, 3000))[:-100]])
def test_a_damaged_body_leaves_nothing(unchanged: TableOnWire, action: str, body: bytes) -> None:
    check_refusal(unchanged.post(action, content=body), 400, 13, "body")


@pytest.mark.operation("UpdateTable", "DeleteFromTable", "MergeInsertIntoTable", client="http")
@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_an_expression_that_would_hurt_is_refused_wherever_it_stands(
    unchanged: TableOnWire, expression: str
) -> None:
    merge = {"on": "id", "when_not_matched_insert_all": "true"}
    for answer in (
        unchanged.post("update", {"updates": [["text", expression]]}),
        unchanged.post("update", {"updates": [["text", "text"]], "predicate": expression}),
        unchanged.post("delete", {"predicate": expression}),
        unchanged.post(
            "merge_insert",
            content=stream(some_rows()),
            params=merge | {"when_matched_update_all_filt": expression},
        ),
        unchanged.post(
            "merge_insert",
            content=stream(some_rows()),
            params=merge | {"when_not_matched_by_source_delete_filt": expression},
        ),
    ):
        check_refusal(answer, 400, 13)
