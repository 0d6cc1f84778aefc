"""Jobs in random histories: how often they may call their function, and what is true after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeAlias

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine

from tests.engine import FUNCTION_CALLS, Crash, Moment, succeeded
from tests.histories.computing import CALLS, Call, Number, noted_function
from tests.histories.lakes import TemporaryLake
from tests.histories.ledger import Bounds, Ledger, Sight, Standing, View, bounds
from tests.histories.writes import COMPUTED, PaperTable, Write
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.lance.model.edits import ColumnAlteration

Cuts: TypeAlias = Mapping[str, Any]
Death: TypeAlias = tuple[Moment, int]
FUNCTIONS = ("y0", "y1", "y2", "other", "sum")


@dataclass
class Run:
    """A job as seen from the rows: how they stood before it, and after each write of somebody else.

    `again` are the rows, for each of the writes, whose results may be no good after it.
    """

    column: str
    before: View
    later: list[View] = field(default_factory=list)
    again: list[set[int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    # Whether results of any row may be lost, or those of which rows.
    is_lossy: bool = False
    lost: set[int] = field(default_factory=set)

    @property
    def after(self) -> View:
        return self.later[-1] if self.later else self.before

    def sights(self, row_id: int) -> list[Sight | None]:
        return [view.get(row_id) for view in (self.before, *self.later)]

    def allowed_calls(self, row_id: int) -> Bounds:
        sights, is_again = self.sights(row_id), [row_id in rows for rows in self.again]
        if self.is_lossy or row_id in self.lost:
            # Whoever lost results looks at the row once more, whether somebody wrote or not.
            sights, is_again = [*sights, sights[-1]][: max(len(sights), 2)], [True, *is_again[1:]]
        return bounds(sights, is_again)

    def called(self) -> Counter[int]:
        return Counter(call.row for call in self.calls)


class JobHistory(RuleBasedStateMachine):
    """Runs jobs and checks them against the ledgers of their columns."""

    has_stable_row_ids: ClassVar = True

    def begin(self, values: Sequence[Number], kinds: Sequence[FunctionKind]) -> None:
        self._lake = TemporaryLake()
        self.engine = self._lake.engine
        self._functions = {
            name: noted_function(name, kind) for name, kind in zip(FUNCTIONS, kinds, strict=True)
        }
        table = PaperTable(self.engine, values, has_stable_row_ids=self.has_stable_row_ids)
        self.ledgers = {
            "y": Ledger("y", "x", "y0"),
            "other": Ledger("other", "x", "other"),
            "sum": Ledger("sum", "y", "sum"),
        }
        self.table = table
        for name in COMPUTED:
            self.engine.operations.columns.declare(LOCAL_CALLER, table.ident, [self._declaration(name)])
            table.declared(name)
        self.observe()

    def teardown(self) -> None:
        if hasattr(self, "_lake"):
            self._lake.remove()

    def observe(self) -> set[int]:
        """To be called after every write; returns the rows that are others to the engine now."""
        renewed = self.table.read()
        for ledger in self.ledgers.values():
            ledger.replaced(renewed)
            ledger.observe(self.table.rows)
        return renewed

    def alter_function(self, version: str) -> None:
        self.ledgers["y"].function = version
        self.engine.operations.columns.alter(LOCAL_CALLER, self.table.ident, self._declaration("y"))

    def rename_column(self, column: str) -> None:
        names = self.table.names
        new_name = f"{column}_by_us_{len(self.table.versions)}_{self.table.versions[-1]}"
        change = ColumnAlteration(names[column], rename=new_name)
        self.engine.operations.schemas.alter_columns(LOCAL_CALLER, self.table.ident, "main", [change])
        names[column] = new_name
        self.observe()

    def run_on_branch(self, column: str) -> None:
        """A branch begins with what is known of its rows."""
        run, name = self._run(column), f"b{self.table.versions[-1]}"
        refs, ident = self.engine.operations.refs, self.table.ident
        refs.create_branch(LOCAL_CALLER, ident, name, "main", None)
        self._carry_out(run, lambda: self.engine.run(self._submit(column, {"branch": name})))
        for row_id in run.before:
            self._check_calls(run, row_id, run.called()[row_id])
        refs.delete_branch(LOCAL_CALLER, ident, name)

    def run_plain(self, column: str, cuts: Cuts) -> None:
        run, before = self._run(column), self.table.versions[-1]
        self._carry_out(run, lambda: self.engine.run(self._submit(column, cuts)))
        self._settle(column, run)
        if not any(sight.may_be_called for sight in run.before.values()):
            assert self.table.versions[-1] == before, "a version without need"

    def run_disturbed(self, column: str, cuts: Cuts, write: Write) -> None:
        run = self._run(column)
        run.is_lossy = write.is_in_place
        self.engine.publisher.before_next = lambda: self._disturb(column, run, write)
        self._carry_out(run, lambda: self.engine.run(self._submit(column, cuts)))
        self._settle(column, run)

    def run_beside_writers(self, column: str, cuts: Cuts, writes: Sequence[tuple[int, Write]]) -> None:
        """Somebody writes before several commits, and inside calls, no more often than the job catches up.

        So nothing is left to do when it ends.
        """
        run, publisher = self._run(column), self.engine.publisher
        at_commits = [write for call, write in writes if not call]

        def write_before_commit() -> None:
            if at_commits:
                publisher.before_next = write_before_commit
                self._interfere(column, run, at_commits.pop(0))

        publisher.before_next = write_before_commit
        FUNCTION_CALLS.watch(
            {call: partial(self._interfere, column, run, write) for call, write in writes if call}
        )
        self._carry_out(run, lambda: self.engine.run(self._submit(column, cuts)))
        FUNCTION_CALLS.watch({})
        self._settle(column, run)

    def _interfere(self, column: str, run: Run, write: Write) -> None:
        """Values that were published and written over since have to be computed again."""
        known, found = run.after, self.table.values(column)
        self._disturb(column, run, write)
        published = {row_id for row_id, sight in known.items() if found.get(row_id) != sight.pair[1]}
        again = {
            row_id for row_id in published if self.table.rows.get(row_id, {}).get(column) != found.get(row_id)
        }
        run.again[-1] |= set(run.after) if write.is_in_place else again

    def run_crashing(self, column: str, cuts: Cuts, death: Death, write: Write | None) -> None:
        run = self._run(column)
        is_unsaved = death[0] is Moment.BEFORE or write is not None
        run.is_lossy = is_unsaved and "flush_interval_seconds" not in cuts
        meanwhile = None if write is None else lambda: self._disturb(column, run, write)
        self._carry_out(run, lambda: self._crash(self._submit(column, cuts), death, meanwhile))
        self._settle(column, run)

    def run_killed(self, column: str, cuts: Cuts, call: int, write: Write | None) -> None:
        """The worker dies inside a call: whatever it had committed or checkpointed is not computed again."""
        run, publisher, committed = self._run(column), self.engine.publisher, [0]
        run.is_lossy = write is not None and "flush_interval_seconds" not in cuts

        def meanwhile() -> None:
            publisher.after_each = None
            saved = max(committed[-1], len(CALLS) - _most_unsaved(cuts))
            run.lost = {made.row for made in CALLS[saved:]}
            if write is not None:
                self._disturb(column, run, write)

        publisher.after_each = lambda: committed.append(len(CALLS))
        self._submit(column, cuts)
        self._carry_out(run, lambda: self.engine.kill_and_take_over(call, meanwhile))
        publisher.after_each = None
        self._settle(column, run)

    def run_where(self, limit: int, cuts: Cuts, death: Death | None = None) -> None:
        """A filter takes exactly its rows, also those that are up to date."""
        rows = self.table.rows
        matching = {row_id for row_id, row in rows.items() if row["x"] is not None and row["x"] > limit}
        run, job = (
            self._run("y"),
            self._submit("y", {**cuts, "where": f"`{self.table.names['x']}` > {limit}"}),
        )
        self._carry_out(run, lambda: self.engine.run(job) if death is None else self._crash(job, death, None))
        self._all_written(matching, run)

    def run_only(self, selection: RowSelection, cuts: Cuts) -> None:
        """The rows that are listed are those that are computed."""
        listed, run = self._listed("y", selection), self._run("y")
        self._carry_out(run, lambda: self.engine.run(self._submit("y", {**cuts, "only": selection})))
        self._all_written(listed, run)

    def run_partly(self, request: Cuts, write: Write | None = None) -> None:
        """Fills what it fills; what it says is filled has to be right."""
        run = self._run("y")
        if write is not None:
            self.engine.publisher.before_next = lambda: self._disturb("y", run, write)
        self._carry_out(run, lambda: self.engine.run(self._submit("y", request)), may_fail=True)
        self._settle_by_claims(run)

    def check_claims(self, column: str) -> None:
        """What is said of the rows agrees with what they hold."""
        ledger, rows = self.ledgers[column], self.table.rows
        listed = self._listed(column, RowSelection.STALE) | self._listed(column, RowSelection.MISSING)
        name = self.table.names[column]
        status = self.engine.operations.provenance.status(LOCAL_CALLER, self.table.ident, name, None)
        assert status.fresh + status.stale + status.missing + status.failed == status.rows == len(rows)
        assert status.fresh == len(rows) - len(listed)
        for row_id, sight in ledger.view(rows).items():
            if row_id not in listed:
                assert sight.pair[1] == ledger.value(sight.pair[0]), f"{column} of {row_id} is not right"
                assert sight.standing is not Standing.DUE, f"{column} of {row_id} has to be computed"
            else:
                assert sight.may_be_called, f"{column} of {row_id} need not be computed"

    def _run(self, column: str) -> Run:
        return Run(column, self.ledgers[column].view(self.table.rows))

    def _carry_out(self, run: Run, job: Callable[[], Job], *, may_fail: bool = False) -> None:
        CALLS.clear()
        ended = job()
        self.engine.publisher.before_next = None
        run.calls = list(CALLS)
        self.ledgers[run.column].note_calls(run.calls)
        note(f"{ended.state}: {ended.result}, {len(run.calls)} calls")
        if may_fail and not self.has_stable_row_ids and ended.state is JobState.FAILED:
            assert ended.failure is not None
            assert "has no stable row ids" in ended.failure.message
        else:
            assert succeeded(ended)["rows_computed"] <= len(run.calls)

    def _disturb(self, column: str, run: Run, write: Write) -> None:
        """What the job has published so far is in the table already, and not yet on paper."""
        self._take_over_values(column, self.table.rows)
        self.table.do(write)
        run.again.append(self.observe())
        run.later.append(self.ledgers[column].view(self.table.rows))

    def _take_over_values(self, column: str, row_ids: Iterable[int]) -> None:
        found = self.table.values(column)
        for row_id in row_ids:
            if row_id in found:
                self.table.rows[row_id][column] = found[row_id]

    def _settle(self, column: str, run: Run) -> None:
        """After a job that was for all rows: each holds what it should, and none was computed needlessly."""
        ledger, called, rows = self.ledgers[column], run.called(), self.table.rows
        seen = run.before.keys() | {row_id for view in run.later for row_id in view}
        for row_id in seen:
            self._check_calls(run, row_id, called[row_id])
        assert called.keys() <= seen
        for row in rows.values():
            row[column] = ledger.value(row[ledger.given])
        self.observe()
        for row_id in rows:
            self._note_written(ledger, run, row_id, called[row_id])
        ledger.clear_bank()

    def _check_calls(self, run: Run, row_id: int, calls: int) -> None:
        allowed = run.allowed_calls(row_id)
        assert allowed.fewest <= calls <= allowed.most, f"row {row_id}: {calls} calls, {allowed}"

    def _note_written(self, ledger: Ledger, run: Run, row_id: int, calls: int) -> None:
        sights, after = run.sights(row_id), run.after[row_id]
        is_touched = len({sight and sight.pair for sight in sights}) > 1
        if after.standing is Standing.DUE or (calls and not is_touched):
            ledger.written(row_id, self.table.rows)
        elif any(sight is not None and sight.may_be_called for sight in sights):
            ledger.doubted(row_id, with_own=False)
            ledger.kept(row_id, self.table.rows)

    def _all_written(self, row_ids: set[int], run: Run) -> None:
        assert run.called() == Counter(row_ids)
        ledger = self.ledgers["y"]
        for row_id in row_ids:
            self.table.rows[row_id]["y"] = ledger.value(self.table.rows[row_id]["x"])
        self.observe()
        for row_id in row_ids:
            ledger.written(row_id, self.table.rows)

    def _settle_by_claims(self, run: Run) -> None:
        ledger, called, rows = self.ledgers["y"], run.called(), self.table.rows
        for row_id, sight in run.before.items():
            # Without stable ids a row that was moved is another one at the version that is read.
            most = int(sight.may_be_called or not self.has_stable_row_ids)
            assert called[row_id] <= most, f"row {row_id} was computed needlessly"
        self._check_only_such_rows_changed(run)
        ledger.bank(run.calls)
        self._take_over_values("y", rows)
        self.observe()
        fresh = set(rows) - self._listed("y", RowSelection.STALE) - self._listed("y", RowSelection.MISSING)
        for row_id in rows:
            sight = run.after[row_id]
            if row_id in fresh and sight.standing is Standing.DUE:
                ledger.written(row_id, rows)
            elif sight.may_be_called or called[row_id] or row_id not in fresh:
                # A pinned job may have put back what was written over since: then the row is looked at again.
                ledger.doubted(row_id, with_own=row_id not in fresh)
                if row_id in fresh:
                    ledger.kept(row_id, rows)
        self.check_claims("y")

    def _check_only_such_rows_changed(self, run: Run) -> None:
        """Values come from calls for that row, of this job or an earlier one; a pinned one may be old."""
        ledger, found = self.ledgers["y"], self.table.values("y")
        known = {(call.row, call.given) for call in run.calls} | ledger.banked.get(ledger.function, set())
        for row_id, row in self.table.rows.items():
            if found[row_id] != row["y"]:
                values = [ledger.value(given) for called, given in known if called == row_id]
                assert found[row_id] in values, f"row {row_id} holds {found[row_id]}"

    def _listed(self, column: str, selection: RowSelection) -> set[int]:
        provenance = self.engine.operations.provenance
        name = self.table.names[column]
        found = provenance.rows(LOCAL_CALLER, self.table.ident, name, None, selection, None, 1000)
        names = {identity: row_id for row_id, identity in self.table.identities.items()}
        return {names[identity] for identity in found}

    def _submit(self, column: str, request: Cuts) -> Job:
        asked = BackfillRequest(self.table.names[column], **request)
        return self.engine.operations.jobs.submit_backfill(LOCAL_CALLER, self.table.ident, asked, None)

    def _crash(self, job: Job, death: Death, meanwhile: Callable[[], None] | None) -> Job:
        """Runs a job with a worker that dies at one of its commits (if it has so many), then with another."""
        moment, commit = death
        publisher, worker = self.engine.publisher, self.engine.worker

        def count_down() -> None:
            nonlocal commit
            commit -= 1
            publisher.dies = moment if commit == 1 else None
            publisher.before_next = count_down if commit > 1 else None

        publisher.dies = moment if commit == 1 else None
        publisher.before_next = count_down if commit > 1 else None
        claimed = worker.claim()
        assert claimed is not None
        with suppress(Crash):
            worker.run(claimed)
        publisher.dies = publisher.before_next = None
        return self.engine.take_over(claimed, meanwhile)

    def _declaration(self, column: str) -> ColumnDeclaration:
        ledger, names = self.ledgers[column], self.table.names
        return ColumnDeclaration(names[column], self._functions[ledger.function], (names[ledger.given], "id"))


def _most_unsaved(cuts: Cuts) -> int:
    """How many of a task's results are in no checkpoint while it runs."""
    is_flushed = "flush_interval_seconds" in cuts and "max_checkpoint_size" in cuts
    return cuts["max_checkpoint_size"] if is_flushed else len(CALLS)
