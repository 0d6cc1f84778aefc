"""What the transaction log says about rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from pyroaring import BitMap64

from tidemill.errors import Unavailable
from tidemill.jobs.model.coverage import Changes, Watched
from tidemill.lance.changes import check_gone, find_changes, same_values
from tidemill.lance.fragments import ColumnFileWriter, describe_file

Change = Callable[[LanceDataset], object]


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    rows = pa.table({"x": pa.array(range(20), pa.int64()), "y": pa.array(range(20), pa.int64())})
    return lance.write_dataset(
        rows, str(tmp_path / "t.lance"), enable_stable_row_ids=True, max_rows_per_file=10
    )


def replace_column(dataset: LanceDataset, column: str, fragment_id: int) -> LanceDataset:
    field = pa.field(column, pa.int64())
    with ColumnFileWriter(dataset, dataset.uri, 10, pa.schema([field])) as writer:
        writer.write(pa.array(range(10)).to_numpy(), [pa.array([7] * 10, pa.int64())])
    description = describe_file(dataset, writer.path)
    group = LanceOperation.DataReplacementGroup(fragment_id, lance.fragment.DataFile(**description))
    operation = LanceOperation.DataReplacement([group])
    return LanceDataset.commit(dataset.uri, Transaction(dataset.version, operation))


def changes_of(dataset: LanceDataset, *steps: Change) -> Changes:
    dataset.add_columns(pa.field("z", pa.int64()))
    base = dataset.version
    for step in steps:
        dataset.checkout_latest()
        step(dataset)
    return find_changes(lance.dataset(dataset.uri), base, Watched(("x",)))


def update(column: str, where: str) -> Change:
    return lambda dataset: dataset.update({column: "100"}, where=where)


def append(dataset: LanceDataset) -> None:
    dataset.insert(pa.table({"x": pa.array([50], pa.int64()), "y": pa.array([50], pa.int64())}))


def compact(dataset: LanceDataset) -> None:
    dataset.optimize.compact_files(target_rows_per_fragment=100)


@pytest.mark.parametrize(
    "harmless",
    [
        append,
        compact,
        lambda dataset: dataset.delete("x = 3"),
        lambda dataset: dataset.create_scalar_index("x", "BTREE"),
        lambda dataset: dataset.add_columns({"w": "x + 1"}),
        lambda dataset: dataset.drop_columns(["y"]),
        lambda dataset: dataset.update_config({"a": "b"}),
        lambda dataset: replace_column(dataset, "z", 1),
    ],
)
def test_what_cannot_touch_inputs_changes_nothing(dataset: LanceDataset, harmless: Change) -> None:
    assert changes_of(dataset, harmless) == Changes()


def test_without_stable_row_ids_updated_rows_are_others(tmp_path: Path) -> None:
    """Nothing is left at their old addresses, so there is nothing to be said of those."""
    rows = pa.table({"x": pa.array(range(20), pa.int64()), "y": pa.array(range(20), pa.int64())})
    dataset = lance.write_dataset(rows, str(tmp_path / "foreign.lance"), max_rows_per_file=10)
    assert changes_of(dataset, update("x", "x IN (4, 15)"), compact, append) == Changes()
    assert not BitMap64(
        lance.dataset(dataset.uri).to_table(with_row_id=True)["_rowid"].to_pylist()
    ) & BitMap64([4, (1 << 32) + 5])


def test_without_stable_row_ids_a_replaced_column_is_noticed(tmp_path: Path) -> None:
    rows = pa.table({"x": pa.array(range(20), pa.int64()), "y": pa.array(range(20), pa.int64())})
    dataset = lance.write_dataset(rows, str(tmp_path / "foreign.lance"), max_rows_per_file=10)
    changes = changes_of(dataset, lambda dataset: replace_column(dataset, "x", 1))
    assert changes.updated == BitMap64(range(1 << 32, (1 << 32) + 10))


def test_updated_rows_are_found(dataset: LanceDataset) -> None:
    assert changes_of(dataset, update("x", "x IN (4, 15)")).updated == BitMap64([4, 15])


@pytest.mark.parametrize(
    "same",
    [
        update("y", "x IN (4, 15)"),
        lambda dataset: dataset.update({"x": "x"}, where="x < 12"),
        lambda dataset: dataset.update({"x": "x + 0"}, where="x < 12"),
    ],
)
def test_rows_written_with_the_values_they_had_are_not_changed(dataset: LanceDataset, same: Change) -> None:
    assert changes_of(dataset, same) == Changes()


def test_a_change_that_was_taken_back_at_once_is_none(dataset: LanceDataset) -> None:
    found = changes_of(
        dataset,
        lambda handle: handle.update({"x": "x + 1"}, where="x = 4"),
        lambda handle: handle.update({"x": "x - 1"}, where="x = 5 AND y = 4"),
    )
    assert found == Changes()


def test_a_written_output_is_a_change_unless_a_job_wrote_it(dataset: LanceDataset) -> None:
    base = dataset.version
    replaced = replace_column(dataset, "y", 1)
    latest = lance.dataset(dataset.uri)
    assert find_changes(latest, base, Watched(("x",))) == Changes()
    watched = Watched(("x",), ("y",))
    assert find_changes(latest, base, watched).updated == BitMap64([10, *range(11, 20)]) - BitMap64([7])
    own = Watched(("x",), ("y",), frozenset({replaced.version}))
    assert find_changes(latest, base, own) == Changes()


def test_a_compaction_that_rewrote_an_index_changes_nothing(dataset: LanceDataset) -> None:
    """pylance cannot show such a transaction."""
    found = changes_of(
        dataset,
        lambda handle: handle.create_scalar_index("x", "BTREE"),
        lambda handle: handle.delete("x = 3"),
        compact,
        update("x", "x = 15"),
    )
    assert found.updated == BitMap64([15])


def test_updates_are_found_before_and_after_a_rewrite_of_another_column(dataset: LanceDataset) -> None:
    found = changes_of(
        dataset,
        update("x", "x = 4"),
        append,
        lambda handle: replace_column(handle, "z", 1),
        compact,
        update("x", "x = 15"),
        append,
    )
    assert found.updated == BitMap64([4, 15])


def test_a_rewritten_input_column_makes_its_fragments_stale(dataset: LanceDataset) -> None:
    dataset.add_columns({"v": "x * 2"})
    base = dataset.version
    replace_column(dataset, "v", 1)
    found = find_changes(lance.dataset(dataset.uri), base, Watched(("v",)))
    assert found.updated == BitMap64(range(10, 20))


def test_changes_of_a_field_are_found_under_the_name_that_it_had(dataset: LanceDataset) -> None:
    dataset.add_columns({"v": "x * 2"})
    base = dataset.version
    dataset.update({"v": "100"}, where="x = 4")
    dataset = replace_column(dataset, "v", 1)
    renamed: Any = {"path": "v", "name": "now"}
    dataset.alter_columns(renamed)
    found = find_changes(lance.dataset(dataset.uri), base, Watched(("now",)))
    assert found.updated == BitMap64([4, *range(10, 20)])


@pytest.mark.parametrize(
    "drastic",
    [
        lambda dataset: dataset.checkout_version(1).restore(),
        lambda dataset: dataset.insert(dataset.to_table(), mode="overwrite"),
        lambda dataset: dataset.alter_columns({"path": "x", "data_type": pa.int32()}),
    ],
)
def test_after_a_drastic_change_nothing_can_be_relied_upon(dataset: LanceDataset, drastic: Change) -> None:
    found = changes_of(dataset, drastic)
    assert found.is_total
    assert found.reason


def test_a_log_that_is_gone_means_everything(dataset: LanceDataset) -> None:
    base = dataset.version
    update("x", "x = 4")(dataset)
    update("x", "x = 5")(dataset)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    found = find_changes(lance.dataset(dataset.uri), base, Watched(("x",)))
    assert (found.is_total, found.reason) == (True, f"the log of version {base + 1} is gone")


def drop_and_add(dataset: LanceDataset) -> None:
    dataset.drop_columns(["x"])
    dataset.add_columns(pa.field("x", pa.int64()))


def test_a_column_that_was_dropped_and_added_without_values_is_another_one(dataset: LanceDataset) -> None:
    found = changes_of(dataset, drop_and_add)
    assert found.is_total
    assert "rewrote input columns" in (found.reason or "")


def test_a_base_that_is_newer_than_the_table_means_everything(dataset: LanceDataset) -> None:
    found = find_changes(dataset, dataset.version + 1, Watched(("x",)))
    assert (found.is_total, found.reason) == (True, f"version {dataset.version + 1} is gone")


def without_base(dataset: LanceDataset, *steps: Change) -> tuple[Changes, int]:
    """The base is cleaned up with the files that only it needed; tags keep every later version."""
    update("y", "x = 0")(dataset)
    dataset.add_columns(pa.field("z", pa.int64()))
    base = dataset.version
    for step in steps:
        dataset.checkout_latest()
        step(dataset)
    latest = lance.dataset(dataset.uri)
    for version in range(base + 1, latest.version + 1):
        latest.tags.create(f"kept-{version}", version)
    latest.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    kept = lance.dataset(dataset.uri)
    assert [version["version"] for version in kept.versions()] == list(range(base + 1, latest.version + 1))
    return find_changes(kept, base, Watched(("x",))), base


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (append, set()),
        (lambda dataset: dataset.delete("x = 3"), set()),
        (lambda dataset: dataset.create_scalar_index("x", "BTREE"), set()),
        (lambda dataset: dataset.update_config({"a": "b"}), set()),
        (lambda dataset: replace_column(dataset, "z", 1), set()),
        (update("x", "x IN (4, 15)"), {4, 15}),
        # Whether the values differ from those before cannot be told any more.
        (update("y", "x IN (4, 15)"), {4, 15}),
        (lambda dataset: replace_column(dataset, "x", 1), set(range(10, 20))),
    ],
)
def test_without_the_base_every_rewritten_row_counts_as_changed(
    dataset: LanceDataset, step: Change, rows: set[int]
) -> None:
    assert without_base(dataset, step)[0] == Changes(BitMap64(rows))


@pytest.mark.parametrize(
    "step",
    [
        compact,
        lambda dataset: dataset.add_columns({"w": "x + 1"}),
        lambda dataset: dataset.drop_columns(["y"]),
        lambda dataset: dataset.alter_columns({"path": "x", "data_type": pa.int32()}),
        drop_and_add,
    ],
)
def test_without_the_base_a_change_that_only_its_files_could_explain_means_everything(
    dataset: LanceDataset, step: Change
) -> None:
    found, base = without_base(dataset, step)
    assert (found.is_total, found.reason) == (True, f"version {base} is gone")


def test_without_the_base_later_versions_are_still_told_apart(dataset: LanceDataset) -> None:
    steps = [append, lambda handle: handle.add_columns({"w": "x + 1"}), compact, update("x", "x = 15")]
    assert without_base(dataset, *steps)[0] == Changes(BitMap64([15]))


@pytest.mark.parametrize(
    "kind",
    [
        pa.float64(),
        pa.float32(),
        pa.list_(pa.float32()),
        pa.list_(pa.float64(), 2),
        pa.struct([("f", pa.float64())]),
    ],
    ids=str,
)
def test_negative_zero_is_another_value_than_zero_and_nan_is_itself(kind: pa.DataType) -> None:
    def of(value: float) -> object:
        if pa.types.is_struct(kind):
            return {"f": value}
        return value if pa.types.is_floating(kind) else [value, value]

    first = pa.array([of(0.0), of(-0.0), of(float("nan")), of(1.0), None], kind)
    second = pa.array([of(-0.0), of(-0.0), of(float("nan")), of(1.0), None], kind)
    assert same_values(first, second).tolist() == [False, True, True, True, True]
    assert same_values(first.slice(0, 1), second.slice(0, 1)).tolist() == [False]


def test_a_version_is_gone_only_if_storage_answers(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"x": [1]}), str(tmp_path / "t.lance"))
    with pytest.raises(OSError, match="not found") as gone:
        dataset.checkout_version(99)
    check_gone(gone.value)
    nobody_listens = {
        "endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "client_max_retries": "0",
    }
    with pytest.raises((OSError, ValueError)) as outage:
        lance.dataset("s3://bucket/t.lance", storage_options=nobody_listens)
    with pytest.raises(Unavailable):
        check_gone(outage.value)
