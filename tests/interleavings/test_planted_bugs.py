"""Bugs planted into the commit of versions: a scenario that finds none of them would prove little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.interleavings import test_publishing, test_versions
from tests.interleavings.conftest import local_put
from tests.interleavings.world import Deployment, walk
from tidemill.catalog.model.tables import Table, TableVersion
from tidemill.errors import Unavailable
from tidemill.lance.versions.commit import VersionOperations
from tidemill.lance.versions.manifests import Publication, StoredManifests
from tidemill.lance.versions.reconcile import VersionSettling
from tidemill.storage.local import LocalTableFiles
from tidemill.store.unit_of_work import SqlTransaction
from tidemill.store.versions import SqlVersionRepository

ENOUGH = 1500
SCENARIOS = {**test_versions.SCENARIOS, **test_publishing.SCENARIOS}

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    root: Path = tmp_path_factory.mktemp("planted")
    files = LocalTableFiles(root / "warehouse")
    with Deployment.opened(f"sqlite:///{root}/catalog.db", files, local_put(root), root) as opened:
        yield opened


def whatever_is_there_is_ours(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(StoredManifests, "_identify", lambda manifests, version: Publication.OURS)


def the_row_stays_when_the_name_is_lost(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(VersionSettling, "_replace_row", lambda settling, version: version)


def bookkeeping_is_written_when_the_number_is_reserved(plant: pytest.MonkeyPatch) -> None:
    class AtOnce:
        def __init__(self, transaction: SqlTransaction) -> None:
            self.transaction = transaction

        def packed(self) -> None:
            return None

    plant.setattr(SqlTransaction, "deferring", AtOnce)


def bookkeeping_is_forgotten(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SqlTransaction, "apply", lambda tx, deferred: None)


def the_final_name_is_looked_at_first_and_once(plant: pytest.MonkeyPatch) -> None:
    update_rows = VersionSettling._update_rows

    def is_gone(settling: Any, row: TableVersion, newest: int) -> bool:
        manifests = settling._manifests
        return not manifests.has(row.manifest_path) and not manifests.has(row.staged_path)

    def update_unseen(settling: Any, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(VersionSettling, "_is_gone", lambda *_: True)
            update_rows(settling, *arguments)

    plant.setattr(VersionSettling, "_is_gone", is_gone)
    plant.setattr(VersionSettling, "_update_rows", update_unseen)


def what_is_only_staged_is_gone(plant: pytest.MonkeyPatch) -> None:
    def is_gone(settling: Any, row: TableVersion, newest: int) -> bool:
        return not settling._manifests.has(row.manifest_path)

    plant.setattr(VersionSettling, "_is_gone", is_gone)


def deleted_rows_go_before_their_manifests(plant: pytest.MonkeyPatch) -> None:
    def remove(versions: SqlVersionRepository, version: TableVersion) -> None:
        versions.remove(version.table_id, version.branch, version.version)

    plant.setattr(SqlVersionRepository, "mark_deleted", remove)


def commits_are_acknowledged_when_the_number_is_reserved(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(VersionOperations, "publish", lambda versions, table, version, entry, staged: version)


def sizes_are_not_compared(plant: pytest.MonkeyPatch) -> None:
    def readable(settling: Any, version: TableVersion) -> TableVersion | None:
        is_there = version.deferred is None and settling._manifests.has(version.manifest_path)
        return version if is_there else settling.settle(version)

    plant.setattr(VersionSettling, "ensure_readable", readable)


def readers_do_not_wait_for_bookkeeping(plant: pytest.MonkeyPatch) -> None:
    readable = VersionSettling.ensure_readable

    def readable_at_once(settling: Any, version: TableVersion) -> TableVersion | None:
        return readable(settling, replace(version, deferred=None))

    plant.setattr(VersionSettling, "ensure_readable", readable_at_once)


def a_number_that_was_used_before_is_used_again(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(StoredManifests, "_check_first", lambda manifests, version: Publication.OURS)


def storage_without_known_versions_counts_as_missing(plant: pytest.MonkeyPatch) -> None:
    reconcile = VersionSettling.reconcile

    def reconcile_known(settling: Any, table: Table) -> bool:
        with settling._store.reading() as tx:
            rows = tx.versions.list_all(table.table_id, table.branch)
        stored = settling._manifests.find_all(table)
        if rows and not any(row.version in stored.final for row in rows):
            settling._check_storage(table, rows, stored)
        return reconcile(settling, table)

    plant.setattr(VersionSettling, "reconcile", reconcile_known)


FOUND_BY: dict[Plant, str] = {
    whatever_is_there_is_ours: "a client and a writer by location",
    the_row_stays_when_the_name_is_lost: "a client and a writer by location",
    bookkeeping_is_written_when_the_number_is_reserved: "a commit with an effect and a writer by location",
    bookkeeping_is_forgotten: "a commit with an effect and a reader",
    the_final_name_is_looked_at_first_and_once: "a worker and a listing",
    what_is_only_staged_is_gone: "a commit with an effect and a listing",
    deleted_rows_go_before_their_manifests: "deletion that is killed and a listing",
    commits_are_acknowledged_when_the_number_is_reserved: "a client and a writer by location",
    sizes_are_not_compared: "a client, a reader and a writer by location",
    readers_do_not_wait_for_bookkeeping: "a commit with an effect and a reader",
    a_number_that_was_used_before_is_used_again: (
        "a writer by location that cleans up behind itself and a client"
    ),
    storage_without_known_versions_counts_as_missing: (
        "a writer by location that cleans up behind itself and a reader"
    ),
}


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__.replace("_", " "))
def test_a_planted_bug_is_found(small: Deployment, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, Unavailable)):
        walk(small, SCENARIOS[FOUND_BY[plant]], ENOUGH)


@pytest.mark.parametrize("name", sorted(set(FOUND_BY.values())))
def test_without_it_nothing_is_found(small: Deployment, name: str) -> None:
    walk(small, SCENARIOS[name], small.first_orders)
