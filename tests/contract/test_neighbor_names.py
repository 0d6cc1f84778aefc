"""NeighborNames, on every store: few names, however many there are, and those next to the given one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.samples import a_function, a_job, a_namespace, a_table, an_entry, ident, path
from tidemill.catalog.model.tables import TableKind
from tidemill.iceberg.model.entries import EntryKind
from tidemill.store.engine import SqlStore

COUNT = 2


@pytest.fixture
def store(sql_store: SqlStore) -> SqlStore:
    """The namespace `shop` has all kinds of names, and more of them than are read; `other` has one."""
    with sql_store.transaction() as tx:
        for name in ("shop", "other", "shoe", "sheep"):
            tx.namespaces.add(a_namespace(name))
        tx.namespaces.add(a_namespace("shop", "inner"))
        for number in range(8):
            tx.tables.add(a_table("shop", f"t{number}"))
        tx.tables.add(a_table("shop", "u", kind=TableKind.VIEW))
        tx.tables.add(a_table("other", "t3x"))
        tx.iceberg.add(an_entry("shop", "v"))
        tx.iceberg.add(an_entry("shop", "w", kind=EntryKind.VIEW))
    return sql_store


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("t3", ["t1", "t2", "t3", "t4"]),
        ("t3x", ["t2", "t3", "t4", "t5"]),
        ("a", ["t0", "t1"]),
        ("z", ["v", "w"]),
    ],
)
def test_names_before_and_from_the_given_one_are_read(store: SqlStore, name: str, names: list[str]) -> None:
    with store.reading() as tx:
        found = tx.names.objects(ident("shop", name), COUNT)
    assert sorted(found_name for found_name, _ in found) == names


def test_each_name_has_its_kind(store: SqlStore) -> None:
    with store.reading() as tx:
        kinds = dict(tx.names.objects(ident("shop", "u"), 3))
        assert tx.names.objects(ident("nowhere", "t"), COUNT) == []
    assert (kinds["u"], kinds["v"], kinds["w"]) == ("view", "iceberg_table", "iceberg_view")


def test_namespaces_have_the_same_parent(store: SqlStore) -> None:
    with store.reading() as tx:
        assert sorted(found.name for found in tx.names.namespaces(path("shop"), 1)) == ["shoe", "shop"]
        assert tx.names.namespaces(path("shop", "inn"), COUNT) == [path("shop", "inner")]
        assert tx.names.namespaces(path("shoe", "inn"), COUNT) == []


def test_functions_are_named_once_and_not_when_dropped(store: SqlStore) -> None:
    functions = [a_function(name) for name in ("half", "length", "words")]
    again = replace(functions[1], digest="sha256:" + "9" * 64)
    with store.transaction() as tx:
        keys = [tx.functions.add(function, "ada") for function in (*functions, again)]
        tx.functions.drop(keys[2])
        assert sorted(tx.names.functions("lengthy", 5)) == ["half", "length"]
        assert tx.names.functions("zzz", 1) == ["length"]


def test_jobs_come_with_their_tables(store: SqlStore) -> None:
    jobs = [a_job() for _ in range(4)]
    with store.transaction() as tx:
        for job in jobs:
            tx.jobs.add(job)
        ids = sorted(job.job_id for job in jobs)
        found = dict(tx.names.jobs(ids[1], 1))
    assert sorted(found) == ids[:2]
    assert set(found.values()) == {jobs[0].table}
