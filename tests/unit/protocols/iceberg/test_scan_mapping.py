"""Scan tasks, tokens and single values, as clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.rest.scan_planning import PlanCompleted, ScanTasks
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from starlette.datastructures import Headers, QueryParams

from tests.protocol.iceberg.wire import check_form
from tests.unit.iceberg.planning.lakes import (
    BY_DAY,
    Lake,
    data_file,
    entry,
    metadata_of,
    metadata_with,
    open_adapters,
    rows,
    write_manifest,
    write_manifest_list,
)
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.errors import PlanNotFound, PlanTaskNotFound
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.iceberg.operations.access import IcebergAccess
from tidemill.iceberg.operations.tables import IcebergTableOperations
from tidemill.iceberg.planning.scans import ScanPlanner
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.routes import scans
from tidemill.protocols.iceberg.scan_mapping import (
    decode_token,
    encode_token,
    read_scan,
    tasks_json,
    value_json,
)

IDENT = table_ident(("lake", "t"))
SECRETS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}


class OneTable(IcebergTableOperations):
    """A catalog with a table that is in no database."""

    def __init__(self, metadata: bytes) -> None:
        self.entry = Entry(uuid4(), IDENT, EntryKind.TABLE, "", "metadata.json", metadata)

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        return self.entry


class Access(IcebergAccess):
    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._options = storage_options

    def storage_options(self, caller: Caller, ident: TableIdent, location: str) -> Mapping[str, str]:
        return self._options


class Server:
    """The routes of scans over one table."""

    scan_planner: ScanPlanner
    iceberg_tables: OneTable
    iceberg_access: Access
    namespace_separator = "\x1f"

    def __init__(
        self, planner: ScanPlanner, metadata: bytes, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.scan_planner = planner
        self.iceberg_tables = OneTable(metadata)
        self.iceberg_access = Access(storage_options or {})

    def call(self, body: Any = None, **parameters: str) -> Call:
        return Call(
            operations=cast("Operations", self),
            caller=LOCAL_CALLER,
            limits=Limits(),
            parameters={"namespace": "lake", "table": "t", **parameters},
            query=QueryParams(),
            headers=Headers(),
            body=orjson.dumps(body),
        )

    def plan(self, **body: Any) -> Any:
        answer = scans.plan_table_scan(self.call(body))
        return checked(answer.body, "PlanTableScanResult")

    def fetch(self, plan_id: str) -> Any:
        answer = scans.fetch_planning_result(self.call(**{"plan-id": plan_id}))
        return checked(answer.body, "FetchPlanningResult")

    def tasks(self, plan_task: str) -> Any:
        answer = scans.fetch_scan_tasks(self.call({"plan-task": plan_task}))
        return checked(answer.body, "FetchScanTasksResult")


def checked(body: bytes | memoryview[int], schema: str) -> Any:
    """The answer, if it has the form of the specification, where that lies beside the repository."""
    answer = orjson.loads(bytes(body))
    # Many tasks are all alike, and slow to check.
    if len(answer["file-scan-tasks"]) > 100:
        return answer
    return check_form(
        httpx.Response(200, content=bytes(body), headers={"content-type": "application/json"}), schema
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return open_adapters(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    made = lake.create(BY_DAY)
    made.append(rows(*range(4)))
    made.append(rows(4))
    return made


@pytest.fixture
def server(lake: Lake, table: Table) -> Server:
    return Server(lake.planner, metadata_of(table))


@pytest.fixture(scope="module")
def long(lake: Lake) -> bytes:
    """A table of 2,500 files, the first of which has a deletion vector and the last equality deletes."""
    place: Path = lake.warehouse / "long"
    place.mkdir()
    data = write_manifest(
        place / "data.avro",
        [entry(data_file(f"{number:05d}")) for number in range(2500)],
        ManifestContent.DATA,
        first_row_id=0,
    )
    vector = data_file(
        "vectors",
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        referenced_data_file="00000",
        content_offset=4,
        content_size_in_bytes=40,
    )
    last = data_file("positions", content=DataFileContent.POSITION_DELETES, referenced_data_file="02499")
    deletes = write_manifest(
        place / "deletes.avro", [entry(vector, 2), entry(last, 2)], ManifestContent.DELETES
    )
    write_manifest_list(place / "list.avro", [data, deletes])
    return metadata_with(place, str(place / "list.avro"))


def test_pyiceberg_reads_the_plan_as_its_own(server: Server, table: Table) -> None:
    condition = {"type": "and", "left": {"type": "lt", "term": "id", "value": 3}, "right": True}
    read = PlanCompleted.model_validate(server.plan(filter=condition))
    found = [FileScanTask.from_rest_response(task, read.delete_files) for task in read.file_scan_tasks]
    own = {task.file.file_path: task for task in table.scan(row_filter="id < 3").plan_files()}
    assert {task.file.file_path: task.residual for task in found} == {
        path: task.residual for path, task in own.items()
    }
    for task in found:
        other = own[task.file.file_path].file
        assert (task.file.record_count, task.file.file_size_in_bytes, task.file.file_format) == (
            other.record_count,
            other.file_size_in_bytes,
            other.file_format,
        )


def test_partition_values_are_told_by_type(server: Server) -> None:
    partitions = [task["data-file"]["partition"] for task in server.plan()["file-scan-tasks"]]
    assert sorted(partitions) == [["2024-01-01"], ["2024-01-02"], ["2024-01-02"], ["2024-01-03"]]


def test_a_partition_of_null_is_null(lake: Lake) -> None:
    """The document has no null among its values, but without one the others would lose their places."""
    made = lake.create(BY_DAY)
    made.append(rows(None))
    asked = read_scan(Fields({}))
    [task] = tasks_json(asked, lake.plan(made, asked.request))["file-scan-tasks"]
    assert task["data-file"]["partition"] == [None]


def test_statistics_are_told_for_the_fields_asked_for(server: Server) -> None:
    condition = {"type": "eq", "term": "id", "value": 4}
    [task] = server.plan(filter=condition, **{"stats-fields": ["id", "day", "nothing"]})["file-scan-tasks"]
    file = task["data-file"]
    assert file["lower-bounds"] == {"keys": [1, 2], "values": [4, "2024-01-02"]}
    assert file["null-value-counts"] == {"keys": [1, 2], "values": [0, 0]}
    [without] = server.plan(filter=condition)["file-scan-tasks"]
    assert "lower-bounds" not in without["data-file"]


def test_a_filter_that_is_not_planned_in_full_is_the_residual_of_every_task(server: Server) -> None:
    bucket = {"type": "transform", "transform": "bucket[4]", "term": "id"}
    condition = {"type": "eq", "term": bucket, "value": 1}
    tasks = server.plan(filter=condition)["file-scan-tasks"]
    assert [task["residual-filter"] for task in tasks] == [condition] * 4


def test_a_long_plan_comes_in_batches_with_their_own_delete_files(lake: Lake, long: bytes) -> None:
    server = Server(lake.planner, long)
    answer = server.plan()
    batches = [answer, *(server.tasks(token) for token in answer["plan-tasks"])]
    files = [task["data-file"]["file-path"] for batch in batches for task in batch["file-scan-tasks"]]
    assert files == [f"{number:05d}" for number in range(2500)]
    assert [[file["file-path"] for file in batch.get("delete-files", ())] for batch in batches] == [
        ["vectors"],
        [],
        ["positions"],
    ]
    for batch in batches:
        ScanTasks.model_validate(batch)
    assert batches[2]["file-scan-tasks"][-1]["delete-file-references"] == [0]


def test_vectors_are_told_by_their_place_and_files_by_their_first_row(lake: Lake, long: bytes) -> None:
    answer = Server(lake.planner, long).plan()
    assert {key: answer["delete-files"][0][key] for key in ("content", "file-format", "content-offset")} == {
        "content": "position-deletes",
        "file-format": "puffin",
        "content-offset": 4,
    }
    assert [task["data-file"]["first-row-id"] for task in answer["file-scan-tasks"][:2]] == [0, 10]


def test_batches_stay_the_same_when_the_table_moves_on(lake: Lake) -> None:
    made = lake.create()
    made.append(rows(1))
    server = Server(lake.planner, metadata_of(made))
    answer = server.plan()
    made.append(rows(2))
    server.iceberg_tables.entry = Entry(
        server.iceberg_tables.entry.entry_id, IDENT, EntryKind.TABLE, "", "new.json", metadata_of(made)
    )
    assert server.fetch(answer["plan-id"])["file-scan-tasks"] == answer["file-scan-tasks"]
    assert len(server.plan()["file-scan-tasks"]) == 2


def test_a_plan_is_cancelled_without_an_answer(server: Server) -> None:
    answer = scans.cancel_planning(server.call(**{"plan-id": server.plan()["plan-id"]}))
    assert (answer.status_code, answer.body) == (204, b"")


def test_a_plan_of_a_snapshot_that_is_gone_is_not_found(lake: Lake, table: Table, server: Server) -> None:
    plan_id = server.plan()["plan-id"]
    entry_id = server.iceberg_tables.entry.entry_id
    empty = metadata_of(lake.create())
    server.iceberg_tables.entry = Entry(entry_id, IDENT, EntryKind.TABLE, "", "new.json", empty)
    with pytest.raises(PlanNotFound):
        server.fetch(plan_id)


def test_tokens_that_are_none_are_not_found(lake: Lake, server: Server) -> None:
    plan_id = server.plan()["plan-id"]
    with pytest.raises(PlanTaskNotFound, match="Plan task does not exist: garbled"):
        server.tasks("garbled")
    with pytest.raises(PlanTaskNotFound):
        server.tasks(plan_id)
    with pytest.raises(PlanNotFound, match="Plan does not exist: x"):
        server.fetch("x")
    with pytest.raises(PlanNotFound):
        scans.cancel_planning(server.call(**{"plan-id": plan_id[:-3]}))
    other = Server(lake.planner, server.iceberg_tables.entry.metadata)
    with pytest.raises(PlanNotFound):
        other.fetch(plan_id)


def test_credentials_come_with_the_plan_where_there_are_any(lake: Lake, table: Table) -> None:
    answer = Server(lake.planner, metadata_of(table), SECRETS).plan()
    [credential] = answer["storage-credentials"]
    assert credential["prefix"] == table.location()
    assert credential["config"]["s3.secret-access-key"] == "secret"


def test_no_credentials_come_where_clients_have_their_own(server: Server) -> None:
    assert "storage-credentials" not in server.plan()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"filter": None}, "filter: must be true, false or an object"),
        ({"snapshot-id": "1"}, "snapshot-id: must be an integer"),
        ({"snapshot-id": 1, "end-snapshot-id": 2}, "snapshot-id: cannot be given together"),
        ({"start-snapshot-id": 1}, "end-snapshot-id: is missing"),
        ({"select": "id"}, "select: must be a list of strings"),
        ({"case-sensitive": "no"}, "case-sensitive: must be true or false"),
        ({"min-rows-requested": -1}, "min-rows-requested: must be an integer of at least 0"),
    ],
)
def test_requests_that_are_none_are_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_scan(Fields(body))
    assert str(caught.value).startswith(problem)


def test_filters_that_cannot_be_told_are_not_supported(server: Server) -> None:
    field = {"type": "reference", "name": "id"}
    with pytest.raises(Unsupported, match="comparing two fields"):
        server.plan(filter={"type": "eq", "left": field, "right": field})


SOME_UUID = UUID("eb26bdb1-a1d8-4aa6-990e-da940875492c")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (LongType(), None, None),
        (BooleanType(), True, True),
        (LongType(), 2**62, 2**62),
        (DoubleType(), 1.0, 1.0),
        (DoubleType(), float("nan"), "NaN"),
        (DoubleType(), float("-inf"), "-Infinity"),
        (DecimalType(9, 2), Decimal("14.2"), "14.20"),
        (DecimalType(20, 0), Decimal("1E+3"), "1000"),
        (StringType(), "ü", "ü"),
        (UUIDType(), SOME_UUID, str(SOME_UUID)),
        (UUIDType(), SOME_UUID.bytes, str(SOME_UUID)),
        (DateType(), 13850, "2007-12-03"),
        (DateType(), -1, "1969-12-31"),
        (TimeType(), 81068123456, "22:31:08.123456"),
        (TimestampType(), 1196676930123456, "2007-12-03T10:15:30.123456"),
        (TimestampType(), 0, "1970-01-01T00:00:00.000000"),
        (TimestamptzType(), 1196676930123456, "2007-12-03T10:15:30.123456+00:00"),
        (TimestampNanoType(), 1196676930123456789, "2007-12-03T10:15:30.123456789"),
        (TimestamptzNanoType(), -1, "1969-12-31T23:59:59.999999999+00:00"),
        (FixedType(3), b"xyz", "78797A"),
        (BinaryType(), b"\x0a", "0A"),
    ],
)
def test_a_value_has_the_form_of_its_type(kind: IcebergType, value: Any, expected: Any) -> None:
    assert value_json(kind, value) == expected


def test_days_outside_the_calendar_are_told_as_such() -> None:
    with pytest.raises(Unsupported, match="is outside the supported years 1 to 9999"):
        value_json(DateType(), 10_000_000)


TABLE = uuid4()
PAYLOAD = {
    "scan": {"snapshot-id": 2**62, "filter": {"type": "eq", "term": "ü", "value": "x" * 100}},
    "first": 7,
}


def test_a_token_gives_back_what_is_in_it() -> None:
    assert decode_token(encode_token(PAYLOAD, TABLE), TABLE) == PAYLOAD


def test_a_token_is_safe_in_a_path() -> None:
    assert encode_token(PAYLOAD, TABLE).replace("-", "").replace("_", "").isalnum()


def test_a_token_of_another_table_is_none() -> None:
    assert decode_token(encode_token(PAYLOAD, TABLE), uuid4()) is None


@given(st.data())
def test_a_changed_token_is_none(data: st.DataObject) -> None:
    token = encode_token(PAYLOAD, TABLE)
    # The last character has bits that carry nothing.
    place = data.draw(st.integers(0, len(token) - 2))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    assert decode_token(token[:place] + other + token[place + 1 :], TABLE) is None


@given(st.one_of(st.text(), st.binary().map(lambda data: data.hex())))
def test_text_that_is_no_token_is_none(text: str) -> None:
    assert decode_token(text, TABLE) is None
