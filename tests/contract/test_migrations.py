"""Bringing databases to the schema of this code, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
import sqlalchemy
from pyroaring import BitMap64
from sqlalchemy import (
    Connection,
    Engine,
    Inspector,
    create_engine,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import BigInteger, Boolean, Integer, LargeBinary, Text, TypeDecorator, TypeEngine, Uuid

from tests.contract.samples import a_namespace
from tests.sealing import CipherInMemory
from tidemill.catalog.model.functions import Environment, encode_envelope, source_function
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page, TableKind
from tidemill.catalog.sealed_variables import opened_variables
from tidemill.errors import Unavailable
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.options import BackfillRequest, RefreshRequest
from tidemill.jobs.model.views import MaterializedView, RefreshPolicy, SourceQuery, ViewKind, ViewSource
from tidemill.store.engine import open_store
from tidemill.store.migrations import m0013_sealed_variables, m0014_function_owners
from tidemill.store.migrations.m0001_initial import TYPES
from tidemill.store.migrations.runner import MIGRATIONS, migrate
from tidemill.store.schema import (
    ROOT_ID,
    coverage,
    environments,
    functions,
    jobs,
    metadata,
    schema_migrations,
)

INDEXES = {
    "functions_digest",
    "functions_name",
    "functions_version",
    "grants_of_namespace",
    "grants_of_table",
    "jobs_active_subject",
    "jobs_idempotency",
    "jobs_in_state",
    "jobs_of_kind",
    "jobs_of_subject",
    "jobs_of_table",
    "jobs_waiting",
    "receipts_expiry",
    "tables_location",
    "view_sources_source",
}

EARLIER_FUNCTIONS = sqlalchemy.table(
    "functions", *(sqlalchemy.column(name, kind) for name, kind in m0014_function_owners.COLUMNS.items())
)


@pytest.fixture
def engine(new_url: str) -> Iterator[Engine]:
    """A plain engine, without what the store makes of it."""
    engine = create_engine(new_url)
    yield engine
    engine.dispose()


def add_colour(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE namespaces ADD COLUMN colour TEXT")


def fail_half_way(connection: Connection) -> None:
    add_colour(connection)
    connection.exec_driver_sql("ALTER TABLE nowhere ADD COLUMN colour TEXT")


def applied(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        return list(connection.scalars(select(schema_migrations.c.version).order_by("version")))


def test_a_new_database_gets_every_migration_once(new_url: str, engine: Engine) -> None:
    for _ in range(2):
        open_store(new_url).close()
    assert applied(engine) == list(range(1, len(MIGRATIONS) + 1))


def test_what_is_stored_outlives_opening_again(new_url: str) -> None:
    shop = a_namespace("shop")
    first = open_store(new_url)
    with first.transaction() as tx:
        tx.namespaces.add(shop)
    first.close()
    second = open_store(new_url)
    with second.transaction() as tx:
        assert tx.namespaces.get(shop.path) == shop
    second.close()


def test_a_further_migration_is_applied_to_what_is_there(new_url: str, engine: Engine) -> None:
    open_store(new_url).close()
    with engine.begin() as connection:
        migrate(connection, [*MIGRATIONS, add_colour])
    assert applied(engine)[-1] == len(MIGRATIONS) + 1
    assert "colour" in columns(inspect(engine), "namespaces")


def test_a_migration_that_fails_half_way_leaves_no_trace(new_url: str, engine: Engine) -> None:
    store = open_store(new_url)
    with pytest.raises(DBAPIError), store._connection() as connection:
        migrate(connection, [*MIGRATIONS, fail_half_way])
    store.close()
    assert len(applied(engine)) == len(MIGRATIONS)
    assert "colour" not in columns(inspect(engine), "namespaces")


def test_a_database_newer_than_the_code_is_refused_and_left_alone(new_url: str, engine: Engine) -> None:
    open_store(new_url).close()
    with engine.begin() as connection:
        migrate(connection, [*MIGRATIONS, add_colour])
    with pytest.raises(Unavailable, match=rf"schema {len(MIGRATIONS) + 1} .* newer Tidemill"):
        open_store(new_url)
    assert len(applied(engine)) == len(MIGRATIONS) + 1


def test_the_migrated_schema_is_the_one_that_queries_use(new_url: str, engine: Engine) -> None:
    open_store(new_url).close()
    migrated = inspect(engine)
    assert set(migrated.get_table_names()) == set(metadata.tables)
    for name, table in metadata.tables.items():
        expected = {
            column.name: (kind(column.type), column.nullable or column.primary_key)
            for column in table.columns
        }
        assert columns(migrated, name) == expected, name
        assert migrated.get_pk_constraint(name)["constrained_columns"] == [c.name for c in table.primary_key]


def test_the_indexes_that_arbitrate_are_there(new_url: str, engine: Engine) -> None:
    open_store(new_url).close()
    migrated = inspect(engine)
    indexes = {index["name"] for name in metadata.tables for index in migrated.get_indexes(name)}
    assert indexes >= INDEXES


def test_what_was_there_before_jobs_could_be_paused_is_kept(new_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[:2])
        for digest, name, at in (("b", "f", 1), ("a", "f", 1), ("c", "f", 9), ("d", "g", 5)):
            bytes_type = TYPES[connection.dialect.name]["bytes"]
            connection.exec_driver_sql(
                "INSERT INTO functions (digest, name, envelope, registered_by, registered_at)"
                f" VALUES ('{digest}', '{name}', CAST('' AS {bytes_type}), 'ada', {at})"
            )
    open_store(new_url).close()
    with engine.begin() as connection:
        query = select(functions.c.digest, functions.c.version).order_by("digest")
        found = {row.digest: row.version for row in connection.execute(query)}
    assert found == {"a": 1, "b": 2, "c": 3, "d": 1}


def test_what_was_there_before_clusters_is_kept(new_url: str, engine: Engine) -> None:
    # As the code of that time wrote them.
    request = '{"column": "caption", "where": null, "read_version": 3, "concurrency": null}'
    subject = "00000000000000000000000000000001"
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[:4])
        connection.exec_driver_sql(
            "INSERT INTO jobs (job_id, kind, table_id, table_levels, subject_id, request, state,"
            " submitted_by, epoch, created_at, updated_at, progress, event_count, part_count) VALUES"
            f" ('j', 'backfill', '{subject}', '[\"t\"]', '{subject}', '{request}', 'QUEUED',"
            " 'ada', 0, 1, 1, '{}', 0, 0)"
        )
        connection.exec_driver_sql(
            f"INSERT INTO tables VALUES ('{subject}', '{ROOT_ID.hex}', 't', 'l', 'table', '{{}}')"
        )
        connection.exec_driver_sql(
            "INSERT INTO computed_columns (column_id, table_id, name, function_digest, inputs)"
            f" VALUES ('{subject}', '{subject}', 'caption', 'd', '[]')"
        )
        connection.execute(
            insert(coverage).values(
                subject_id=UUID(subject),
                digest="d",
                watermark=7,
                revision=2,
                row_ids=BitMap64([1]).serialize(),
            )
        )
    store = open_store(new_url)
    with store.transaction() as tx:
        claimed = tx.leases.claim("worker", timedelta(0))
        found = tx.coverage.find(UUID(subject), "d")
        (column,) = tx.derived.list_columns(UUID(subject))
    store.close()
    assert claimed is not None
    assert claimed.request == BackfillRequest("caption", read_version=3)
    assert found == Coverage("d", 7, BitMap64([1]), 2, published=7)
    assert not column.has_auto_backfill


def test_what_was_there_before_views_had_several_sources_is_kept(new_url: str, engine: Engine) -> None:
    view, source = UUID(int=1), UUID(int=2)
    # As the code of that time wrote them.
    query = '{"source": ["shop", "orders"], "columns": null, "filter": null, "limit": null, "offset": null}'
    request = '{"source_version":3,"concurrency":null,"max_rows_per_fragment":null,"is_full":true}'
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[:5])
        connection.exec_driver_sql(
            f"INSERT INTO tables VALUES ('{view.hex}', '{ROOT_ID.hex}', 'v', 'l', 'view', '{{}}')"
        )
        connection.exec_driver_sql(
            "INSERT INTO materialized_views"
            " (view_id, source_id, kind, query, raw_query, digest, inputs, has_auto_refresh, columns)"
            f" VALUES ('{view.hex}', '{source.hex}', 'query', '{query}', 'raw', 'd', '[]', FALSE, '[]')"
        )
        connection.exec_driver_sql(
            "INSERT INTO jobs (job_id, kind, table_id, table_levels, subject_id, request, state,"
            " submitted_by, epoch, created_at, updated_at, progress, event_count, part_count) VALUES"
            f" ('j', 'refresh', '{view.hex}', '[\"v\"]', '{view.hex}', '{request}', 'QUEUED',"
            " 'ada', 0, 1, 1, '{}', 0, 0)"
        )
    store = open_store(new_url)
    with store.transaction() as tx:
        found = tx.derived.find_view(view)
        job = tx.jobs.get("j")
    store.close()
    assert found == MaterializedView(
        view_id=view,
        sources=(ViewSource(source, ("shop", "orders")),),
        kind=ViewKind.QUERY,
        query=SourceQuery(("shop", "orders")),
        raw_query="raw",
        digest="d",
    )
    assert job.request == RefreshRequest(source_version=3, policy=RefreshPolicy.FULL)


def test_tables_that_were_there_before_iceberg_are_kept(new_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[:6])
        for number, kind_of_row in enumerate(TableKind, start=1):
            connection.exec_driver_sql(
                f"INSERT INTO tables VALUES ('{UUID(int=number).hex}', '{ROOT_ID.hex}',"
                f" '{kind_of_row.value}', '/w/Größe/{number}', '{kind_of_row.value}', '{{}}')"
            )
    store = open_store(new_url)
    with store.transaction() as tx:
        found = tx.tables.list_in(NamespacePath(), Page())
        is_taken = tx.tables.has_overlapping("/w/Größe/1/data")
    store.close()
    assert [(table.ident.name, table.kind) for table in found] == [
        ("query", TableKind.QUERY),
        ("table", TableKind.TABLE),
        ("view", TableKind.VIEW),
    ]
    assert is_taken


def columns(migrated: Inspector, table: str) -> dict[str, tuple[type, bool]]:
    keys = migrated.get_pk_constraint(table)["constrained_columns"]
    return {
        column["name"]: (kind(column["type"]), column["nullable"] or column["name"] in keys)
        for column in migrated.get_columns(table)
    }


def kind(column_type: TypeEngine[object]) -> type:
    """The family of a type; SQLite keeps ids as text of fixed length."""
    plain = column_type.impl if isinstance(column_type, TypeDecorator) else column_type
    if isinstance(plain, Uuid) or getattr(plain, "length", None) == 32:
        return Uuid
    families = (BigInteger, Boolean, Integer, LargeBinary, Text)
    return next(family for family in families if isinstance(plain, family))


LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
PLANTED = "planted-4711-value"
BEFORE_SEALED = MIGRATIONS.index(m0013_sealed_variables.upgrade)


def plant_variables(engine: Engine) -> None:
    """An environment, a job and a view as the version before stored them."""
    variables = f'{{"KEY":"{PLANTED}"}}'
    environment = f'{{"packages":[],"variables":{variables}}}'
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[:BEFORE_SEALED])
        insert_environment = "INSERT INTO environments (name, packages, variables) VALUES"
        connection.exec_driver_sql(f"{insert_environment} ('e', '[]', '{variables}')")
        connection.exec_driver_sql(f"{insert_environment} ('none', '[]', '{{}}')")
        connection.execute(
            insert(jobs).values(
                job_id="j",
                kind="backfill",
                table_id=UUID(int=1),
                table_levels=[],
                subject_id=UUID(int=2),
                request={"column": "c", "environment": orjson.loads(environment)},
                state="DONE",
                submitted_by="ada",
                cluster="default",
                epoch=1,
                attempt=1,
                created_at=LONG_AGO,
                updated_at=LONG_AGO,
                progress={},
                event_count=0,
                part_count=0,
            )
        )


def stored_variables(engine: Engine) -> list[str]:
    with engine.begin() as connection:
        rows = connection.execute(select(environments.c.name, environments.c.variables)).all()
        request = connection.scalar(select(jobs.c.request).where(jobs.c.job_id == "j"))
    found = {row.name: row.variables for row in rows}
    assert found["none"] == {}
    assert request is not None
    return [found["e"]["KEY"], request["environment"]["variables"]["KEY"]]


def test_variables_from_before_they_were_sealed_are_sealed(new_url: str, engine: Engine) -> None:
    plant_variables(engine)
    cipher = CipherInMemory()
    open_store(new_url, cipher).close()
    sealed = stored_variables(engine)
    assert all(value.startswith("sealed:") for value in sealed)
    for value in sealed:
        opened = opened_variables(Environment(variables={"KEY": value}), cipher)
        assert opened.variables == {"KEY": PLANTED}
    open_store(new_url, cipher).close()
    assert stored_variables(engine) == sealed


def test_nothing_of_them_is_left_in_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    engine = create_engine(url)
    plant_variables(engine)
    engine.dispose()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert PLANTED.encode() in stored
    open_store(url, CipherInMemory()).close()
    assert PLANTED.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_variables_are_not_left_in_clear_text_by_who_has_no_key(new_url: str, engine: Engine) -> None:
    plant_variables(engine)
    with pytest.raises(Unavailable, match="not sealed yet"):
        open_store(new_url)
    assert stored_variables(engine) == [PLANTED, PLANTED]


def test_functions_from_before_namespaces_are_in_the_root_or_in_the_one_of_their_name(
    new_url: str, engine: Engine
) -> None:
    team, table_id = a_namespace("team"), "00000000000000000000000000000001"
    named: dict[str, dict[str, dict[str, str]]] = {
        "team$size": {"lancedb": {}},
        "gone$size": {"lancedb": {}},
        "size": {},
    }
    sources = [
        source_function(
            "size", "def size(x): ...", ["x"], pa.int64(), name=name, python="3.11", declared=declared
        )
        for name, declared in named.items()
    ]
    with engine.begin() as connection:
        migrate(connection, MIGRATIONS[: MIGRATIONS.index(m0014_function_owners.upgrade)])
        connection.exec_driver_sql(
            f"INSERT INTO namespaces VALUES ('{team.namespace_id.hex}', '{ROOT_ID.hex}', 'team', '{{}}')"
        )
        connection.exec_driver_sql(
            f"INSERT INTO tables VALUES ('{table_id}', '{ROOT_ID.hex}', 't', 'l', 'table', '{{}}')"
        )
        for function in sources:
            row = {"digest": function.digest, "name": function.name, "envelope": encode_envelope(function)}
            values = {**row, "registered_by": "ada", "registered_at": 1, "version": 1}
            connection.execute(insert(EARLIER_FUNCTIONS).values(values))
        connection.exec_driver_sql(
            "INSERT INTO computed_columns (column_id, table_id, name, function_digest, inputs)"
            f" VALUES ('{table_id}', '{table_id}', 'size', '{sources[0].digest}', '[]')"
        )
    store = open_store(new_url)
    with store.transaction() as tx:
        registered = {item.function.name: item.namespace for item in tx.functions.list_registered()}
        (computed,) = tx.derived.list_columns(UUID(table_id))
        assert tx.functions.get(computed.function_key) == sources[0]
    assert registered == {"team$size": team.path, "gone$size": NamespacePath(), "size": NamespacePath()}
    assert (computed.function_namespace_id, computed.owner) == (team.namespace_id, None)
    store.close()
