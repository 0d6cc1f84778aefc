"""Translating what drivers raise."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tidemill.errors import Unavailable
from tidemill.store.driver_errors import is_foreign_key_violation, translated


def test_our_own_mistakes_are_not_called_an_outage() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(OperationalError), translated():
        connection.exec_driver_sql("SELECT nothing FROM nowhere")
    engine.dispose()


def test_running_out_of_connections_is_unavailable() -> None:
    with pytest.raises(Unavailable), translated():
        raise PoolTimeout


def test_what_is_not_the_databases_passes_through() -> None:
    with pytest.raises(KeyError), translated():
        raise KeyError


@pytest.mark.parametrize(
    ("statement", "is_foreign"), [("INSERT INTO b VALUES (2)", True), ("INSERT INTO a VALUES (1)", False)]
)
def test_a_missing_parent_is_told_from_a_taken_key(statement: str, is_foreign: bool) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql("CREATE TABLE a (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE b (a INTEGER REFERENCES a (id))")
        connection.exec_driver_sql("INSERT INTO a VALUES (1)")
        with pytest.raises(IntegrityError) as refused:
            connection.exec_driver_sql(statement)
        connection.rollback()
    engine.dispose()
    assert is_foreign_key_violation(refused.value) is is_foreign
