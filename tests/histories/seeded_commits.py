"""Bugs to be planted one at a time in how Iceberg commits end, and the checks that have to find them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from starlette.testclient import TestClient

from tests.faulty_database import Fault, FaultySqlite, database_file
from tests.iceberg_mutations import BASE, MUTATIONS, Lake, check_found_out, check_unknown
from tests.iceberg_requests import SCHEMA, with_properties
from tidemill.catalog.operations.receipts import Mutation
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.operations import commit_engine, outcomes
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import Limits
from tidemill.protocols.iceberg.idempotency import MutationHandler
from tidemill.server.bootstrap import build_operations, open_adapters
from tidemill.server.health import WorkerState
from tidemill.server.settings import load_settings
from tidemill.store import driver_errors
from tidemill.store.iceberg import SqlIcebergRepository

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Check: TypeAlias = Callable[["Commits"], None]

MOVED: Final = [
    {"action": "add-schema", "schema": {**SCHEMA, "fields": [{**SCHEMA["fields"][0], "name": "other"}]}},
    {"action": "set-current-schema", "schema-id": -1},
]
SAME_SCHEMA: Final = [{"type": "assert-current-schema-id", "current-schema-id": 0}]


class NoWorkers:
    def state(self) -> WorkerState:
        return "absent"


class Commits:
    """Two servers in one process on one SQLite file; what the database of the first does is up to a test."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._patch = patch
        self._database = FaultySqlite(patch)
        self._numbers = itertools.count()
        self._open = ExitStack()
        self._http = self._open.enter_context(self._served())
        self.rival = self._open.enter_context(self._served())
        patch.setattr(outcomes, "PAUSES_SECONDS", (0.0, 0.0, 0.0))
        patch.setattr(outcomes, "RESOLVE_AFTER_SECONDS", 0.0)

    def close(self) -> None:
        self._open.close()

    def lake(self) -> Lake:
        """A new namespace."""
        self._database.faults.recover()
        self._database.faults.count = 0
        made = Lake(self._http, self._database.faults, f"n{next(self._numbers)}")
        made.prepare()
        return made

    def stored(self) -> set[Path]:
        """All metadata files, whatever refers to them."""
        return set(self._root.rglob("*.metadata.json"))

    @contextmanager
    def rival_before_next_commit(self, lake: Lake, table: str, body: Any) -> Iterator[None]:
        """Another server commits to the table after the first has looked at it."""
        write = MetadataFiles.write
        waiting = [table]

        def written(*arguments: Any) -> Any:
            if waiting:
                answer = self.rival.post(f"{BASE}{lake.at}/tables/{waiting.pop()}", json=body)
                assert answer.status_code == 200, answer.text
            return write(*arguments)

        with self._patch.context() as patch:
            patch.setattr(MetadataFiles, "write", written)
            yield

    @contextmanager
    def rival_before_the_outcome_is_looked_at(self, path: str, body: Any) -> Iterator[None]:
        find_out = outcomes._resolve_outcome
        waiting = [path]

        def found_out(*arguments: Any) -> Any:
            if waiting:
                answer = self.rival.post(waiting.pop(), json=body)
                assert answer.status_code == 200, answer.text
            return find_out(*arguments)

        with self._patch.context() as patch:
            patch.setattr(outcomes, "_resolve_outcome", found_out)
            yield

    @contextmanager
    def _served(self) -> Iterator[TestClient]:
        settings = load_settings(root=self._root, database_url=database_file(self._root))
        lake = open_adapters(settings)
        app = create_app(build_operations(lake, NoWorkers(), lambda: None), Limits())
        with TestClient(app, raise_server_exceptions=False) as http:
            yield http
        lake.store.close()


def an_outcome_is_found_out(commits: Commits, name: str, fault: Fault, *, keyed: bool) -> None:
    check_found_out(commits.lake(), name, fault, keyed=keyed)


def an_outcome_is_called_unknown(commits: Commits, name: str, fault: Fault, *, keyed: bool) -> None:
    check_unknown(commits.lake(), name, fault, keyed=keyed)


def the_next_commit_settles_what_was_unknown(commits: Commits, name: str, fault: Fault) -> None:
    """What happened keeps its file, also when others have committed since; what did not loses it."""
    lake = commits.lake()
    before = commits.stored()
    check_unknown(lake, name, fault, keyed=False)
    for server, table in ((commits.rival, "t"), (lake.http, "u")):
        answer = server.post(f"{BASE}{lake.at}/tables/{table}", json=with_properties(later="x"))
        assert answer.status_code == 200, answer.text
    left = commits.stored() - before - lake.check_files()
    assert not left, f"files that nothing refers to: {left}"


def a_rival_does_not_hide_an_outcome(commits: Commits, kind: str, fault: Fault) -> None:
    """A table's metadata tells whose commit followed which; a view's does not, and then nobody knows."""
    lake = commits.lake()
    what = "tables/t" if kind == "tables" else "views/v"
    path = f"{BASE}{lake.at}/{what}"
    lake.faults.fail_commit(fault)
    with commits.rival_before_the_outcome_is_looked_at(path, with_properties(q="x")):
        answer = lake.http.post(path, json=with_properties(p="x"))
    found = lake.find(what)
    assert found is not None
    is_there = found["metadata"]["properties"].get("p") == "x"
    assert found["metadata"]["properties"].get("q") == "x", "the rival's commit is lost"
    assert lake.number(what) == 1 + is_there
    if kind == "tables":
        assert (answer.status_code, is_there) == (200, True), answer.text
    else:
        assert answer.status_code == 500, answer.text
        assert is_there is (fault is Fault.AFTER)
    lake.check_files()


def a_commit_that_fails_before_it_is_sent_leaves_no_file(commits: Commits) -> None:
    lake = commits.lake()
    before = commits.stored()
    lake.faults.fail_commit(Fault.BUSY)
    answer = lake.http.post(f"{BASE}{lake.at}/tables/t", json=with_properties(p="x"))
    assert answer.status_code == 503, answer.text
    assert lake.number("tables/t") == 0
    assert commits.stored() == before


def one_table_must_not_change_while_another_does(commits: Commits) -> None:
    lake = commits.lake()
    changes = [
        {"identifier": lake.ident("t"), "requirements": SAME_SCHEMA, "updates": []},
        {"identifier": lake.ident("u"), **with_properties(p="x")},
    ]
    with commits.rival_before_next_commit(lake, "t", {"requirements": [], "updates": MOVED}):
        answer = lake.http.post(f"{BASE}/transactions/commit", json={"table-changes": changes})
    assert answer.status_code == 409, answer.text
    assert lake.number("tables/u") == 0


def a_transaction_is_applied_to_what_a_rival_left(commits: Commits, table: str) -> None:
    lake = commits.lake()
    changes = [{"identifier": lake.ident(name), **with_properties(p="x")} for name in ("t", "u")]
    with commits.rival_before_next_commit(lake, table, with_properties(q="x")):
        answer = lake.http.post(f"{BASE}/transactions/commit", json={"table-changes": changes})
    assert answer.status_code == 204, answer.text
    for name in ("t", "u"):
        found = lake.find(f"tables/{name}")
        assert found is not None
        assert found["metadata"]["properties"].get("p") == "x", f"{name} lacks what was acknowledged"
    rivals = lake.find(f"tables/{table}")
    assert rivals is not None
    assert rivals["metadata"]["properties"].get("q") == "x", "the rival's commit is lost"
    lake.check_files()


CASES: Final = tuple(itertools.product(MUTATIONS, (Fault.BEFORE, Fault.AFTER)))
WRITING: Final = ("createTable", "updateTable", "commitTransaction", "createView", "replaceView")
CHECKS: Final[Sequence[Check]] = (
    one_table_must_not_change_while_another_does,
    partial(a_transaction_is_applied_to_what_a_rival_left, table="t"),
    partial(a_transaction_is_applied_to_what_a_rival_left, table="u"),
    a_commit_that_fails_before_it_is_sent_leaves_no_file,
    *(
        partial(check, name=name, fault=fault, keyed=keyed)
        for name, fault in CASES
        for keyed in (False, True)
        for check in (an_outcome_is_found_out, an_outcome_is_called_unknown)
    ),
    *(
        partial(the_next_commit_settles_what_was_unknown, name=name, fault=fault)
        for name, fault in CASES
        if name in WRITING
    ),
    *(
        partial(a_rival_does_not_hide_an_outcome, kind=kind, fault=fault)
        for kind in ("tables", "views")
        for fault in (Fault.BEFORE, Fault.AFTER)
    ),
)


class _NeverRaised(Exception):
    """In the place of an exception that nobody handles any more."""


def files_of_unknown_commits_are_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_engine, "CommitStateUnknown", _NeverRaised)


def a_lost_commit_counts_as_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(driver_errors, "_may_have_committed", lambda _: False)


def a_lost_commit_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "_is_committed", lambda *_: True)


def a_lost_commit_is_sent_again_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "_is_committed", lambda *_: False)


def a_refusal_by_its_own_effect_is_believed(patch: pytest.MonkeyPatch) -> None:
    def found_out(store: Any, work: Any, *_: Any) -> Any:
        with store.transaction() as tx:
            return work(tx)

    patch.setattr(outcomes, "_resolve_outcome", found_out)


def unchanged_tables_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_engine, "_is_unchanged", lambda *_: True)


def a_lost_race_for_the_second_table_is_ignored(patch: pytest.MonkeyPatch) -> None:
    apply = commit_engine._apply
    seen: list[Any] = []

    def applied(tx: Any, step: Any) -> None:
        is_second, seen[:] = bool(seen) and seen[0] is tx, [tx]
        try:
            apply(tx, step)
        except commit_engine._ConcurrentCommit:
            if not is_second:
                raise

    patch.setattr(commit_engine, "_apply", applied)


def a_lost_race_is_ignored(patch: pytest.MonkeyPatch) -> None:
    swap = SqlIcebergRepository.swap
    patch.setattr(SqlIcebergRepository, "swap", lambda *arguments: swap(*arguments) or True)


def receipts_have_a_transaction_of_their_own(patch: pytest.MonkeyPatch) -> None:
    def carry_out(handler: Any, call: Any, target: Any, asked: Any) -> Any:
        answer = handler.to_response(handler.run(call, target, Mutation(call.caller)))
        call.operations.receipts.record_in_own_transaction(replace(asked, outcome=answer.to_bytes()))
        return answer

    patch.setattr(MutationHandler, "_run_once", carry_out)


def every_unsettled_file_is_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "are_committed", lambda *_: False)


def no_unsettled_file_is_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "are_committed", lambda *_: None)


def a_state_that_others_followed_counts_as_gone(patch: pytest.MonkeyPatch) -> None:
    def is_current(tx: Any, changes: Any) -> bool:
        states = [(tx.iceberg.lock_state(after.entry_id), after) for _, after in changes]
        return all(state and state.metadata_location == after.metadata_location for state, after in states)

    patch.setattr(outcomes, "are_committed", is_current)


BUGS: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        files_of_unknown_commits_are_deleted,
        a_lost_commit_counts_as_failed,
        a_lost_commit_counts_as_done,
        a_lost_commit_is_sent_again_unseen,
        a_refusal_by_its_own_effect_is_believed,
        unchanged_tables_are_not_checked,
        a_lost_race_for_the_second_table_is_ignored,
        a_lost_race_is_ignored,
        receipts_have_a_transaction_of_their_own,
        every_unsettled_file_is_removed,
        no_unsettled_file_is_removed,
        a_state_that_others_followed_counts_as_gone,
    )
}
