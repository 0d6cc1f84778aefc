"""pyiceberg as it is published, on a running server: namespaces, tables, commits, views, shared names."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlparse
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import tidemill
from tests.protocol.iceberg.clients import (
    PEOPLE,
    QUERY,
    iceberg_url,
    needs_lance,
    people,
    pyiceberg_on,
    soon,
    spark_view,
)

ODD_NAMES = ("two words", "a/b", "a.b", "50%", "c+d", "ü", "x$y", "?q#f&g=h")
APPENDERS = 4


@pytest.fixture(scope="module")
def catalog(request: pytest.FixtureRequest) -> Iterator[RestCatalog]:
    with pyiceberg_on(iceberg_url(request)) as connected:
        yield connected


@pytest.fixture
def space(catalog: RestCatalog) -> str:
    """A namespace of the test's own."""
    name = f"i{uuid4().hex[:12]}"
    catalog.create_namespace(name)
    return name


@pytest.fixture
def table(catalog: RestCatalog, space: str) -> Table:
    """Two people in one snapshot."""
    made: Table = catalog.create_table((space, "people"), PEOPLE)
    made.append(people((1, "ann"), (2, "bob")))
    return made


def names_in(table: Table) -> list[str]:
    return sorted(table.scan(selected_fields=("name",)).to_arrow()["name"].to_pylist())


def local(location: str) -> Path:
    return Path(unquote(urlparse(location).path))


def test_namespaces_nest_and_list_direct_children_only(catalog: RestCatalog, space: str) -> None:
    catalog.create_namespace((space, "inner"))
    catalog.create_namespace((space, "inner", "innermost"))
    assert (space,) in catalog.list_namespaces()
    assert catalog.list_namespaces((space,)) == [(space, "inner")]
    assert catalog.list_namespaces((space, "inner")) == [(space, "inner", "innermost")]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_works_for_a_namespace_and_a_table(catalog: RestCatalog, space: str, name: str) -> None:
    catalog.create_namespace((space, name), {"odd": name})
    made = catalog.create_table((space, name, name), PEOPLE)
    made.append(people((1, "ann")))
    assert catalog.list_namespaces((space,)) == [(space, name)]
    assert catalog.load_namespace_properties((space, name))["odd"] == name
    assert catalog.list_tables((space, name)) == [(space, name, name)]
    assert names_in(catalog.load_table((space, name, name))) == ["ann"]


def test_a_namespace_is_created_once(catalog: RestCatalog, space: str) -> None:
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(space)
    catalog.create_namespace_if_not_exists(space)


def test_properties_of_a_namespace_are_set_and_removed(catalog: RestCatalog, space: str) -> None:
    catalog.update_namespace_properties(space, updates={"team": "tide", "tier": "1"})
    summary = catalog.update_namespace_properties(space, removals={"tier", "never"}, updates={"team": "mill"})
    kept = catalog.load_namespace_properties(space)
    assert (summary.removed, summary.updated, summary.missing) == (["tier"], ["team"], ["never"])
    assert kept["team"] == "mill"
    assert "tier" not in kept


def test_a_namespace_with_a_view_in_it_is_not_dropped(catalog: RestCatalog, space: str) -> None:
    catalog.create_view((space, "v"), PEOPLE, spark_view())
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(space)
    catalog.drop_view((space, "v"))
    catalog.drop_namespace(space)
    assert not catalog.namespace_exists(space)


def test_what_lies_in_a_missing_namespace_is_not_found(catalog: RestCatalog) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nowhere")
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table(("nowhere", "t"), PEOPLE)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("nowhere", "t"))


def test_a_table_is_created_as_asked(catalog: RestCatalog, space: str) -> None:
    schema = Schema(NestedField(7, "id", LongType(), required=True), NestedField(9, "name", StringType()))
    by_bucket = PartitionSpec(
        PartitionField(source_id=7, field_id=1000, transform=BucketTransform(4), name="id_bucket")
    )
    order = SortOrder(SortField(source_id=9, transform=IdentityTransform()))
    catalog.create_table(
        (space, "t"), schema, partition_spec=by_bucket, sort_order=order, properties={"owner": "ann"}
    )
    loaded = catalog.load_table((space, "t"))
    # A catalog gives every column of a new table an id of its own.
    assert [(field.field_id, field.name) for field in loaded.schema().fields] == [(1, "id"), (2, "name")]
    assert [(field.source_id, str(field.transform)) for field in loaded.spec().fields] == [(1, "bucket[4]")]
    assert [field.source_id for field in loaded.sort_order().fields] == [2]
    assert loaded.properties["owner"] == "ann"


def test_rows_are_appended_overwritten_and_deleted(catalog: RestCatalog, table: Table) -> None:
    table.append(people((3, "cy")))
    table.overwrite(people((2, "bo")), overwrite_filter="id = 2")
    table.delete("id = 1")
    assert names_in(catalog.load_table(table.name())) == ["bo", "cy"]


def test_an_earlier_snapshot_is_still_read(catalog: RestCatalog, table: Table) -> None:
    before = table.current_snapshot()
    assert before is not None
    table.overwrite(people((9, "zoe")))
    then = catalog.load_table(table.name()).scan(snapshot_id=before.snapshot_id).to_arrow()
    assert sorted(then["name"].to_pylist()) == ["ann", "bob"]


def test_columns_evolve_and_old_rows_stay_readable(catalog: RestCatalog, table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("score", DoubleType())
        update.rename_column("name", "first_name")
    table.append(
        pa.table({"id": [3], "first_name": ["cy"], "score": [0.5]}, schema=table.schema().as_arrow())
    )
    loaded = catalog.load_table(table.name())
    assert loaded.scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2, 3],
        "first_name": ["ann", "bob", "cy"],
        "score": [None, None, 0.5],
    }
    assert len(loaded.schemas()) == 2


def test_partitions_evolve(catalog: RestCatalog, table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("name")
    table.append(people((3, "cy")))
    loaded = catalog.load_table(table.name())
    assert [field.name for field in loaded.spec().fields] == ["name"]
    assert names_in(loaded) == ["ann", "bob", "cy"]


def test_tags_and_branches_are_kept(catalog: RestCatalog, table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    number = snapshot.snapshot_id
    table.manage_snapshots().create_tag(number, "first").create_branch(number, "side").commit()
    table.append(people((3, "cy")), branch="side")
    table.manage_snapshots().remove_tag("first").commit()
    loaded = catalog.load_table(table.name())
    assert set(loaded.refs()) == {"main", "side"}
    assert names_in(loaded) == ["ann", "bob"]
    assert loaded.scan().use_ref("side").to_arrow().num_rows == 3


def test_a_transaction_is_one_commit(catalog: RestCatalog, table: Table) -> None:
    files = len(table.metadata.metadata_log)
    with table.transaction() as transaction:
        transaction.set_properties(team="tide")
        transaction.append(people((3, "cy")))
    loaded = catalog.load_table(table.name())
    assert len(loaded.metadata.metadata_log) == files + 1
    assert loaded.properties["team"] == "tide"
    assert names_in(loaded) == ["ann", "bob", "cy"]


def test_a_schema_changed_meanwhile_fails_the_commit(catalog: RestCatalog, table: Table) -> None:
    behind = catalog.load_table(table.name())
    with table.update_schema() as update:
        update.add_column("score", DoubleType())
    late = behind.update_schema()
    late.add_column("rank", LongType())
    with pytest.raises(CommitFailedException):
        late.commit()
    assert "rank" not in catalog.load_table(table.name()).schema().column_names


def test_appends_at_once_all_arrive(catalog: RestCatalog, table: Table) -> None:
    def append(number: int) -> None:
        mine = catalog.load_table(table.name())
        mine.append(people((10 + number, f"p{number}")))

    table.transaction().set_properties({"commit.retry.num-retries": "20"}).commit_transaction()
    with ThreadPoolExecutor(APPENDERS) as pool:
        list(pool.map(append, range(APPENDERS)))
    loaded = catalog.load_table(table.name())
    assert names_in(loaded) == ["ann", "bob", *(f"p{number}" for number in range(APPENDERS))]
    assert len(loaded.snapshots()) == 1 + APPENDERS


def test_a_table_created_in_a_transaction_appears_with_its_rows(catalog: RestCatalog, space: str) -> None:
    with catalog.create_table_transaction((space, "t"), PEOPLE) as transaction:
        transaction.append(people((1, "ann")))
        assert not catalog.table_exists((space, "t"))
    assert names_in(catalog.load_table((space, "t"))) == ["ann"]


def test_a_name_taken_while_a_table_was_staged_fails_its_commit(catalog: RestCatalog, space: str) -> None:
    transaction = catalog.create_table_transaction((space, "t"), PEOPLE)
    catalog.create_table((space, "t"), PEOPLE, properties={"first": "yes"})
    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()
    assert catalog.load_table((space, "t")).properties["first"] == "yes"


def test_a_table_is_renamed_into_another_namespace(catalog: RestCatalog, space: str, table: Table) -> None:
    catalog.create_namespace((space, "inner"))
    moved = catalog.rename_table(table.name(), (space, "inner", "folk"))
    assert moved.metadata.table_uuid == table.metadata.table_uuid
    assert names_in(moved) == ["ann", "bob"]
    assert not catalog.table_exists(table.name())


def test_a_rename_onto_a_taken_name_is_refused(catalog: RestCatalog, space: str, table: Table) -> None:
    catalog.create_table((space, "taken"), PEOPLE)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(table.name(), (space, "taken"))
    assert catalog.table_exists(table.name())


def test_a_table_is_created_once(catalog: RestCatalog, table: Table) -> None:
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(table.name(), PEOPLE)
    again = catalog.create_table_if_not_exists(table.name(), PEOPLE)
    assert again.metadata.table_uuid == table.metadata.table_uuid


def test_a_dropped_table_is_registered_again_from_its_file(catalog: RestCatalog, table: Table) -> None:
    catalog.drop_table(table.name())
    with pytest.raises(NoSuchTableError):
        catalog.load_table(table.name())
    back = catalog.register_table(table.name(), table.metadata_location)
    assert back.metadata_location == table.metadata_location
    assert names_in(catalog.load_table(table.name())) == ["ann", "bob"]
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(table.name(), table.metadata_location)


def test_a_dropped_table_keeps_its_files_and_a_purged_one_does_not(
    catalog: RestCatalog, space: str, table: Table
) -> None:
    dropped = catalog.create_table((space, "dropped"), PEOPLE)
    catalog.drop_table(dropped.name())
    data = [local(task.file.file_path) for task in table.scan().plan_files()]
    files = [local(table.metadata_location), *data]
    assert all(path.exists() for path in files)
    catalog.purge_table(table.name())
    assert soon(lambda: not any(path.exists() for path in files))
    assert local(dropped.metadata_location).exists()


def test_a_view_is_created_listed_loaded_and_dropped(catalog: RestCatalog, space: str, table: Table) -> None:
    made = catalog.create_view(
        (space, "v"), PEOPLE, spark_view(namespace=(space,)), properties={"comment": "later ones"}
    )
    loaded = catalog.load_view((space, "v"))
    assert loaded.metadata == made.metadata
    assert catalog.list_views(space) == [(space, "v")]
    assert catalog.list_tables(space) == [table.name()]
    representation = loaded.sql_for("SPARK")
    assert representation is not None
    assert representation.sql == QUERY
    assert loaded.properties["comment"] == "later ones"
    assert loaded.schema().column_names == ["id", "name"]
    assert [entry.version_id for entry in loaded.history()] == [loaded.current_version().version_id]
    catalog.drop_view((space, "v"))
    assert not catalog.view_exists((space, "v"))
    with pytest.raises(NoSuchViewError):
        catalog.load_view((space, "v"))


def test_a_dropped_view_is_registered_again_from_its_file(catalog: RestCatalog, space: str) -> None:
    # A catalog may remove the files of a dropped view that does not ask to keep them.
    made = catalog.create_view((space, "v"), PEOPLE, spark_view(), properties={"gc.enabled": "false"})
    (file,) = (local(made.location()) / "metadata").glob("*.metadata.json")
    catalog.drop_view((space, "v"))
    back = catalog.register_view((space, "w"), file.as_uri())
    assert back.uuid() == made.uuid()
    assert back.metadata.versions == made.metadata.versions
    assert catalog.list_views(space) == [(space, "w")]


def test_a_view_is_not_a_table_and_a_table_not_a_view(catalog: RestCatalog, space: str, table: Table) -> None:
    catalog.create_view((space, "v"), PEOPLE, spark_view())
    assert not catalog.table_exists((space, "v"))
    assert not catalog.view_exists(table.name())
    with pytest.raises(NoSuchTableError):
        catalog.load_table((space, "v"))
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((space, "v"))
    with pytest.raises(NoSuchViewError):
        catalog.drop_view(table.name())


def test_a_table_and_a_view_do_not_share_a_name(catalog: RestCatalog, space: str, table: Table) -> None:
    catalog.create_view((space, "v"), PEOPLE, spark_view())
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view(table.name(), PEOPLE, spark_view())
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((space, "v"), PEOPLE)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(table.name(), (space, "v"))


@needs_lance
def test_a_lance_table_takes_the_name_from_iceberg(
    catalog: RestCatalog, lake: tidemill.Lake, space: str, table: Table
) -> None:
    lake.create_table(f"{space}.lance", people((1, "ann")))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((space, "lance"), PEOPLE)
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view((space, "lance"), PEOPLE, spark_view())
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(table.name(), (space, "lance"))


@needs_lance
def test_a_lance_table_is_not_to_be_seen_as_an_iceberg_one(
    catalog: RestCatalog, lake: tidemill.Lake, space: str
) -> None:
    lake.create_table(f"{space}.lance", people((1, "ann")))
    assert catalog.list_tables(space) == []
    assert not catalog.table_exists((space, "lance"))
    with pytest.raises(NoSuchTableError):
        catalog.load_table((space, "lance"))
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((space, "lance"))
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(space)


@needs_lance
def test_an_iceberg_table_takes_the_name_from_lance(
    catalog: RestCatalog, lake: tidemill.Lake, space: str, table: Table
) -> None:
    with pytest.raises(tidemill.TidemillRequestError) as refused:
        lake.create_table(f"{space}.people", people((9, "zoe")))
    assert "people" in str(refused.value)
    assert names_in(catalog.load_table(table.name())) == ["ann", "bob"]
