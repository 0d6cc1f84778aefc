"""Random histories of namespaces and tables, against a dictionary that knows the right answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.samples import ALL, a_namespace, a_table, ident, path
from tidemill.errors import ErrorCode, TidemillError
from tidemill.jobs.ports import JobStore, JobTransaction

Levels = tuple[str, ...]
Step = tuple[str, Levels]

NAMES = st.sampled_from(["a", "A", "b"])
STEPS = st.tuples(
    st.sampled_from(["add namespace", "add namespace", "remove namespace", "add table", "remove table"]),
    st.lists(NAMES, min_size=1, max_size=3).map(tuple),
)


@dataclass
class Oracle:
    """What the catalog below `root` should hold, and how it should refuse."""

    root: Levels
    namespaces: set[Levels] = field(default_factory=set)
    tables: set[Levels] = field(default_factory=set)

    def apply(self, action: str, levels: Levels) -> ErrorCode | None:
        match action:
            case "add namespace":
                return self._add(levels, self.namespaces, ErrorCode.NAMESPACE_ALREADY_EXISTS)
            case "add table":
                return self._add(levels, self.tables, ErrorCode.TABLE_ALREADY_EXISTS)
            case "remove table":
                return self._remove_table(levels)
            case _:
                return self._remove_namespace(levels)

    def _add(self, levels: Levels, known: set[Levels], taken: ErrorCode) -> ErrorCode | None:
        if levels[:-1] != self.root and levels[:-1] not in self.namespaces:
            return ErrorCode.NAMESPACE_NOT_FOUND
        if levels in known:
            return taken
        known.add(levels)
        return None

    def _remove_table(self, levels: Levels) -> ErrorCode | None:
        if levels in self.tables:
            self.tables.remove(levels)
            return None
        is_place_known = levels[:-1] == self.root or levels[:-1] in self.namespaces
        return ErrorCode.TABLE_NOT_FOUND if is_place_known else ErrorCode.NAMESPACE_NOT_FOUND

    def _remove_namespace(self, levels: Levels) -> ErrorCode | None:
        if levels not in self.namespaces:
            return ErrorCode.NAMESPACE_NOT_FOUND
        if any(other[:-1] == levels for other in self.namespaces | self.tables):
            return ErrorCode.NAMESPACE_NOT_EMPTY
        self.namespaces.remove(levels)
        return None


def act(tx: JobTransaction, action: str, levels: Levels) -> ErrorCode | None:
    try:
        match action:
            case "add namespace":
                tx.namespaces.add(a_namespace(*levels))
            case "add table":
                tx.tables.add(a_table(*levels))
            case "remove table":
                tx.tables.remove(tx.tables.get(ident(*levels)).table_id)
            case _:
                tx.namespaces.remove(path(*levels))
    except TidemillError as refusal:
        return refusal.code
    return None


@settings(
    max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, max_size=25))
def test_the_store_agrees_with_the_dictionary(store: JobStore, steps: list[Step]) -> None:
    root = (str(uuid4()),)
    oracle = Oracle(root)
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace(*root))
        for action, below in steps:
            levels = root + below
            assert act(tx, action, levels) == oracle.apply(action, levels)
        found = tx.tables.list_under(path(*root))
        assert [table.ident.levels for table in found] == sorted(oracle.tables)
        assert all(tx.tables.find_by_id(table.table_id) == table for table in found)
        for place in {root} | oracle.namespaces:
            children = [child.path.levels for child in tx.namespaces.list_children(path(*place), ALL)]
            assert children == sorted(levels for levels in oracle.namespaces if levels[:-1] == place)
            listed = [table.ident.levels for table in tx.tables.list_in(path(*place), ALL)]
            assert listed == sorted(levels for levels in oracle.tables if levels[:-1] == place)
