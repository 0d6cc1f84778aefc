"""Plans are what pyiceberg would plan by itself, with the delete files and row ids that it leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.parser import parse as where
from pyiceberg.expressions.visitors import expression_evaluator, rewrite_not
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, NestedField

from tests.unit.iceberg.planning.lakes import (
    BY_DAY,
    SCHEMA,
    UNPARTITIONED,
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
from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.errors import MetadataFileNotFound
from tidemill.iceberg.files import CatalogFileIO
from tidemill.iceberg.planning.manifests import FIRST_ROW_ID
from tidemill.iceberg.planning.scans import NO_SNAPSHOT, Plan, ScanRequest
from tidemill.storage.local import LocalTableFiles

NUMBERS = st.integers(-3, 20)
DAYS = st.dates(date(2023, 12, 30), date(2024, 1, 5)).map(date.isoformat)
TEXTS = st.sampled_from(["row 1", "row 12", "ro", "x", "row 7"])
COLUMNS = st.sampled_from([("id", NUMBERS), ("day", DAYS), ("name", TEXTS), ("score", st.floats(-2, 12))])


COMPARISONS: list[Any] = [
    EqualTo,
    NotEqualTo,
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
]
SETS: list[Any] = [In, NotIn]
TESTS: list[Any] = [IsNull, NotNull]
PREFIXES: list[Any] = [StartsWith, NotStartsWith]


@st.composite
def predicates(draw: st.DrawFn) -> Any:
    name, values = draw(COLUMNS)
    match draw(st.sampled_from(["compare", "set", "test", "prefix"])):
        case "set":
            return draw(st.sampled_from(SETS))(name, draw(st.lists(values, max_size=3)))
        case "test":
            return draw(st.sampled_from(TESTS))(name)
        case "prefix":
            return draw(st.sampled_from(PREFIXES))("name", draw(TEXTS))
        case _:
            return draw(st.sampled_from(COMPARISONS))(name, draw(values))


FILTERS = st.recursive(
    predicates(),
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return open_adapters(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module", params=[UNPARTITIONED, BY_DAY], ids=["unpartitioned", "by-day"])
def table(lake: Lake, request: pytest.FixtureRequest) -> Table:
    made = lake.create(request.param)
    made.append(rows(*range(5)))
    made.append(rows(*range(5, 15)))
    made.delete(where("id = 7"))
    return made


@pytest.fixture(scope="module", params=[UNPARTITIONED, BY_DAY], ids=["unpartitioned", "by-day"])
def with_nulls(lake: Lake, request: pytest.FixtureRequest) -> Table:
    made = lake.create(request.param)
    made.append(rows(*range(5)))
    made.append(rows(*range(5, 9), None))
    return made


@pytest.fixture(scope="module")
def appended(lake: Lake) -> Table:
    """Three appends of one file each."""
    made = lake.create()
    for number in range(3):
        made.append(rows(number))
    return made


def paths(plan: Plan) -> list[str]:
    return [task.data_file.file_path for task in plan.tasks]


def snapshot_ids(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.snapshots()]


@lru_cache
def rows_of(path: str) -> list[Record]:
    """Values as expressions are evaluated on: days are numbers."""
    found = parquet.read_table(path.removeprefix("file://"))
    days = found["day"].cast(pa.int32())
    return [Record(*row.values()) for row in found.set_column(1, "day", days).to_pylist()]


def kept(records: Iterable[Record], condition: BooleanExpression) -> list[Any]:
    """Clients push negations down to the predicates, where null is neither less nor greater."""
    is_kept = expression_evaluator(SCHEMA, rewrite_not(condition), case_sensitive=True)
    return [record[0] for record in records if is_kept(record)]


@settings(max_examples=25, deadline=None)
@given(condition=FILTERS)
def test_the_rows_that_residuals_leave_are_those_of_the_filter(
    lake: Lake, with_nulls: Table, condition: BooleanExpression
) -> None:
    everything = paths(lake.plan(with_nulls, ScanRequest()))
    wanted = [number for path in everything for number in kept(rows_of(path), condition)]
    tasks = lake.plan(with_nulls, ScanRequest(filter=condition)).tasks
    found = [number for task in tasks for number in kept(rows_of(task.data_file.file_path), task.residual)]
    assert found == wanted


@settings(max_examples=25, deadline=None)
@given(condition=FILTERS)
def test_files_and_residuals_are_those_that_pyiceberg_plans(
    lake: Lake, table: Table, condition: BooleanExpression
) -> None:
    expected = {task.file.file_path: task.residual for task in table.scan(row_filter=condition).plan_files()}
    plan = lake.plan(table, ScanRequest(filter=condition))
    assert {task.data_file.file_path: task.residual for task in plan.tasks} == expected


def test_tasks_come_in_the_order_of_their_paths(lake: Lake, table: Table) -> None:
    found = paths(lake.plan(table, ScanRequest()))
    assert len(found) >= 2
    assert found == sorted(found)


def test_a_plan_is_pinned_to_the_snapshot_and_schema_it_was_made_for(lake: Lake) -> None:
    made = lake.create()
    made.append(rows(1))
    before = lake.plan(made, ScanRequest(filter=where("name = 'row 1'")))
    made.append(rows(1))
    with made.update_schema() as update:
        update.rename_column("name", "title")
    again = lake.plan(made, before.request)
    assert paths(again) == paths(before)
    assert len(paths(lake.plan(made, ScanRequest(filter=where("title = 'row 1'"))))) == 2


def test_a_table_without_snapshots_has_an_empty_plan_that_stays_empty(lake: Lake) -> None:
    made = lake.create()
    empty = lake.plan(made, ScanRequest())
    assert (paths(empty), empty.request.snapshot_id) == ([], NO_SNAPSHOT)
    made.append(rows(1))
    assert paths(lake.plan(made, empty.request)) == []


def test_a_snapshot_is_scanned_as_it_was(lake: Lake, appended: Table) -> None:
    first, *_ = snapshot_ids(appended)
    assert len(paths(lake.plan(appended, ScanRequest(snapshot_id=first)))) == 1


def test_an_incremental_scan_has_what_was_appended_after_the_start_up_to_the_end(
    lake: Lake, appended: Table
) -> None:
    first, second, third = snapshot_ids(appended)
    whole = {
        found: paths(lake.plan(appended, ScanRequest(snapshot_id=found))) for found in (first, second, third)
    }
    between = lake.plan(appended, ScanRequest(start_snapshot_id=first, end_snapshot_id=second))
    assert set(paths(between)) == set(whole[second]) - set(whole[first])
    after = lake.plan(appended, ScanRequest(start_snapshot_id=first, end_snapshot_id=third))
    assert set(paths(after)) == set(whole[third]) - set(whole[first])


def test_an_incremental_scan_leaves_out_what_a_delete_wrote_anew(lake: Lake) -> None:
    made = lake.create()
    made.append(rows(1, 2))
    made.delete(where("id = 1"))
    made.append(rows(4, 5, 6))
    start = made.snapshots()[0].snapshot_id
    current = made.current_snapshot()
    assert current is not None
    plan = lake.plan(made, ScanRequest(start_snapshot_id=start, end_snapshot_id=current.snapshot_id))
    assert [task.data_file.record_count for task in plan.tasks] == [3]


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (ScanRequest(snapshot_id=5), "snapshot-id: Cannot find snapshot with ID 5"),
        (ScanRequest(snapshot_id=NO_SNAPSHOT), "snapshot-id: Cannot find snapshot with ID -1"),
        (
            ScanRequest(start_snapshot_id=1, end_snapshot_id=6),
            "end-snapshot-id: Cannot find snapshot with ID 6",
        ),
        (ScanRequest(snapshot_id=1, start_snapshot_id=1), "snapshot-id: cannot be given together"),
        (ScanRequest(start_snapshot_id=1), "end-snapshot-id: is missing"),
        (ScanRequest(end_snapshot_id=1), "start-snapshot-id: is missing"),
        (ScanRequest(filter=where("nothing = 1")), "filter: Could not find field with name nothing"),
        (ScanRequest(filter=where("NAME = 'x'")), "filter: Could not find field"),
        (ScanRequest(filter=where("day = 'someday'")), "filter: "),
    ],
)
def test_what_the_table_has_not_got_is_refused(
    lake: Lake, appended: Table, request_: ScanRequest, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        lake.plan(appended, request_)


def test_a_start_that_is_no_ancestor_is_refused(lake: Lake, appended: Table) -> None:
    first, second, _ = snapshot_ids(appended)
    with pytest.raises(InvalidInput, match="is not a parent ancestor of end snapshot"):
        lake.plan(appended, ScanRequest(start_snapshot_id=second, end_snapshot_id=first))


def test_names_are_found_in_any_case_if_that_is_asked_for(lake: Lake, appended: Table) -> None:
    request = ScanRequest(filter=where("NAME = 'row 1'"), is_case_sensitive=False)
    assert len(paths(lake.plan(appended, request))) == 1


def test_the_schema_of_the_snapshot_is_used_if_that_is_asked_for(lake: Lake) -> None:
    made = lake.create()
    made.append(rows(1))
    with made.update_schema() as update:
        update.rename_column("name", "title")
    old = ScanRequest(snapshot_id=snapshot_ids(made)[0], filter=where("name = 'row 1'"))
    assert len(paths(lake.plan(made, replace(old, uses_snapshot_schema=True)))) == 1
    with pytest.raises(InvalidInput, match="Could not find field"):
        lake.plan(made, old)


@pytest.mark.parametrize(("condition", "count"), [("b = '0A'", 1), ("b in ('0a', 'FF')", 1), ("b = 'FF'", 0)])
def test_bytes_are_compared_with_their_hexadecimal_digits(lake: Lake, condition: str, count: int) -> None:
    made = lake.create(schema=Schema(NestedField(1, "b", BinaryType(), required=False)))
    made.append(pa.table({"b": [b"\x0a"]}, schema=made.schema().as_arrow()))
    assert len(paths(lake.plan(made, ScanRequest(filter=where(condition))))) == count
    with pytest.raises(InvalidInput, match=r"filter: .*hexadecimal"):
        lake.plan(made, ScanRequest(filter=where("b = 'no'")))


def test_no_more_files_are_planned_than_have_the_rows_wanted(lake: Lake, appended: Table) -> None:
    assert len(paths(lake.plan(appended, ScanRequest(min_rows_requested=2)))) == 2
    unsure = ScanRequest(min_rows_requested=1, filter=where("id >= 0"))
    assert len(paths(lake.plan(appended, unsure))) == 3


def test_partitions_of_a_dropped_column_keep_their_type(lake: Lake) -> None:
    made = lake.create(BY_DAY)
    made.append(rows(1))
    with made.update_spec() as spec:
        spec.remove_field("day")
    with made.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("day")
    plan = lake.plan(made, ScanRequest())
    assert [str(kind) for kind in plan.partition_types[0]] == ["date"]


@pytest.fixture
def place(lake: Lake) -> Path:
    directory = lake.warehouse / os.urandom(4).hex()
    directory.mkdir()
    return directory


def test_deletion_vectors_and_equality_deletes_are_planned_with_row_ids(lake: Lake, place: Path) -> None:
    vector = data_file(
        "puffin",
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        referenced_data_file="a",
        content_offset=4,
        content_size_in_bytes=40,
    )
    equality = data_file("eq", content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    data = write_manifest(
        place / "data.avro", [entry(data_file("a")), entry(data_file("b"), None)], ManifestContent.DATA, 50
    )
    deletes = write_manifest(
        place / "deletes.avro", [entry(vector, 2), entry(equality, 2)], ManifestContent.DELETES
    )
    write_manifest_list(place / "list.avro", [data, deletes])
    plan = lake.plan_at("it", metadata_with(place, str(place / "list.avro")), ScanRequest())
    told = {
        task.data_file.file_path: ([file.file_path for file in task.deletes], task.data_file[FIRST_ROW_ID])
        for task in plan.tasks
    }
    # The second file came with the manifest, after the equality deletes.
    assert told == {"a": (["eq", "puffin"], 50), "b": ([], 60)}


def test_manifests_outside_the_warehouse_are_not_read(lake: Lake, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path / "data.avro", [entry(data_file("a"))], ManifestContent.DATA)
    inside = lake.warehouse / "list.avro"
    write_manifest_list(inside, [manifest])
    with pytest.raises(Unsupported, match=r"plan it in the client: a manifest's .* is outside the warehouse"):
        lake.plan_at("it", metadata_with(tmp_path, str(inside)), ScanRequest())
    write_manifest_list(tmp_path / "list.avro", [])
    with pytest.raises(Unsupported, match="is outside the warehouse"):
        lake.plan_at("it", metadata_with(tmp_path, str(tmp_path / "list.avro")), ScanRequest())


def test_a_missing_manifest_is_named(lake: Lake, place: Path) -> None:
    with pytest.raises(
        MetadataFileNotFound, match=f"Failed to open input stream for file: .*{place.name}/gone"
    ):
        lake.plan_at("it", metadata_with(place, str(place / "gone")), ScanRequest())


def test_a_manifest_that_is_none_is_told_as_not_readable(lake: Lake, place: Path) -> None:
    (place / "list.avro").write_bytes(b"not avro")
    with pytest.raises(Unsupported, match="is not readable"):
        lake.plan_at("it", metadata_with(place, str(place / "list.avro")), ScanRequest())


def test_metadata_of_a_kind_that_pyiceberg_does_not_know_is_told_as_not_readable(lake: Lake) -> None:
    document = orjson.loads(metadata_with(lake.warehouse, "x"))
    document["schemas"][0]["fields"][0]["type"] = "variant"
    with pytest.raises(
        Unsupported, match=r"^The scan cannot be planned here, plan it in the client: s3://b/m"
    ):
        lake.plan_at("s3://b/m", orjson.dumps(document), ScanRequest())


def test_a_long_plan_is_made_once_for_all_its_batches(lake: Lake, place: Path) -> None:
    files = [entry(data_file(f"{number:05d}")) for number in range(1001)]
    manifest = write_manifest(place / "data.avro", files, ManifestContent.DATA)
    write_manifest_list(place / "list.avro", [manifest])
    metadata = metadata_with(place, str(place / "list.avro"))
    plan = lake.plan_at("it", metadata, ScanRequest(filter=where("id in (1, 2)")))
    (place / "data.avro").unlink()
    assert lake.plan_at("it", metadata, plan.request) is plan
    with pytest.raises(MetadataFileNotFound):
        lake.plan_at("it", metadata, replace(plan.request, filter=AlwaysTrue()))


def test_files_are_read_through_the_storage_alone(tmp_path: Path) -> None:
    io = CatalogFileIO(LocalTableFiles(tmp_path / "other"))
    with pytest.raises(Unsupported):
        io.new_output(str(tmp_path / "file"))


def test_metadata_is_taken_as_it_is_stored(lake: Lake, appended: Table) -> None:
    plan = lake.plan_at("somewhere else", metadata_of(appended), ScanRequest())
    assert len(plan.tasks) == 3
