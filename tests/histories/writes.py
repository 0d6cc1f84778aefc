"""A table that others write to: every write is done for real and on paper, and the two have to agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

import lance
import pyarrow as pa
from lance import LanceOperation

from tests.engine import Engine
from tests.histories.computing import Number
from tidemill.lance.datasets import CommittingNamespace

COMPUTED: Final = ("y", "other", "sum")


@dataclass(frozen=True)
class Write:
    """What another writer does while a job runs."""

    # Twice those that leave work to do in part of a fragment, or move rows that a job is about to fill.
    KINDS: ClassVar = (
        "append",
        "append",
        "update x",
        "update note",
        "update note",
        "delete",
        "compact",
        "write y",
        "x in place",
        "x in place",
        "y in place",
        "y in place",
        "rename x",
        "rename y",
        "swap x",
    )

    kind: str
    pick: int
    value: Number

    @property
    def is_in_place(self) -> bool:
        """Then a job cannot tell that its own value came after it, and may compute the row once more."""
        return self.kind.endswith("in place")


class PaperTable:
    """`rows` is what the table has to hold, by id; `identities` are the row ids the engine knows rows by.

    `names` are those that its columns have now; on paper they keep the ones they began with. `past` is what
    the table held at every version that can still be read.
    """

    def __init__(self, engine: Engine, values: Sequence[Number], *, has_stable_row_ids: bool) -> None:
        self._engine = engine
        self._next_id = 0
        self._next_note = 0
        self._next_column = 0
        self._next_name = 0
        self.rows: dict[int, dict[str, Any]] = {}
        self.identities: dict[int, int] = {}
        self.fragments: dict[int, int] = {}
        self.versions: list[int] = []
        self.names = {name: name for name in ("id", "x", "spare", "note", *COMPUTED)}
        self.past: dict[int, tuple[dict[int, dict[str, Any]], dict[str, str]]] = {}
        create = engine.create_table if has_stable_row_ids else engine.create_foreign_table
        self.ident = create("t", self._new_rows(values))

    def read(self) -> set[int]:
        """Compares the table with the paper; returns the rows that have another identity than before."""
        dataset = self._engine.open(self.ident)
        read = dataset.scanner(with_row_id=True, with_row_address=True).to_table().to_pylist()
        logical = {actual: name for name, actual in self.names.items()}
        found = [{logical.get(name, name): value for name, value in row.items()} for row in read]
        before, self.identities = self.identities, {row["id"]: row.pop("_rowid") for row in found}
        self.fragments = {row["id"]: row.pop("_rowaddr") >> 32 for row in found}
        assert sorted(row["id"] for row in found) == sorted(self.rows), "rows were lost or doubled"
        for row in found:
            assert row == self.rows[row["id"]]
        if dataset.version not in self.versions:
            self.versions.append(dataset.version)
        self.past[dataset.version] = _copied(self.rows), dict(self.names)
        return {row_id for row_id, known in before.items() if self.identities.get(row_id) != known}

    def values(self, column: str) -> dict[int, Number]:
        name = self.names[column]
        found = self._engine.rows(self.ident, columns=("id", name)).to_pylist()
        return {row["id"]: row[name] for row in found}

    def declared(self, column: str) -> None:
        for row in self.rows.values():
            row[column] = None

    def do(self, write: Write) -> None:
        match write.kind:
            case "append":
                self.append([write.value, write.pick])
            case "update x":
                self.update(write.pick, "x", write.value)
            case "update note":
                self.update_note(write.pick)
            case "delete":
                self.delete(self.spared(write.pick))
            case "compact":
                self.compact()
            case "write y":
                self.update(write.pick, "y", write.value)
            case "rename x" | "rename y":
                self.rename(write.kind[-1], past_the_catalog=write.pick == 0)
            case "swap x":
                self.swap(past_the_catalog=write.pick == 0)
            case _:
                self.update_in_place(write.pick, write.kind[0], write.value)

    def append(self, values: Sequence[Number]) -> None:
        self._engine.append(self.ident, self._new_rows(values))

    def update(self, pick: int, column: str, value: Number) -> None:
        ids = self.picked(pick)
        text = "CAST(NULL AS BIGINT)" if value is None else str(value)
        self._engine.open(self.ident).update({self.names[column]: text}, where=among(ids))
        for row_id in ids:
            self.rows[row_id][column] = value

    def update_in_place(self, pick: int, column: str, value: Number) -> None:
        """Columns of whole fragments are rewritten, and the rows stay where they are."""
        ids = self.picked(pick)
        handle = self._engine.open(self.ident)
        new = pa.table({"id": sorted(ids), self.names[column]: pa.array([value] * len(ids), pa.int64())})
        hit = {self.fragments[row_id] for row_id in ids}
        made = [f.update_columns(new, "id") for f in handle.get_fragments() if f.fragment_id in hit]
        if not made:
            return
        operation = LanceOperation.Update(
            updated_fragments=[fragment for fragment, _ in made],
            fields_modified=list(made[0][1]),
            update_mode="rewrite_columns",
        )
        self._commit(handle.version, operation)
        for row_id in ids:
            self.rows[row_id][column] = value

    def rewrite(self, pick: int, column: str) -> None:
        """The rows are written, and hold what they held."""
        name = self.names[column]
        self._engine.open(self.ident).update({name: f"`{name}`"}, where=among(self.picked(pick)))

    def update_note(self, pick: int) -> None:
        ids, self._next_note = self.picked(pick), self._next_note + 1
        text = f"seen {self._next_note}"
        self._engine.open(self.ident).update({self.names["note"]: f"'{text}'"}, where=among(ids))
        for row_id in ids:
            self.rows[row_id]["note"] = text

    def upsert(self, pick: int, values: Sequence[Number]) -> None:
        """Whole rows, as somebody has them who does not know of the computed columns."""
        ids = sorted(self.picked(pick))[: len(values)]
        handle = self._engine.open(self.ident)
        empty: dict[str, Any] = dict.fromkeys(self._columns())
        rows = [{**empty, "id": row_id, "x": x} for row_id, x in zip(ids, values, strict=False)]
        rows += [{**empty, "id": self._new_id(), "x": x} for x in values[len(ids) :]]
        merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.Table.from_pylist([self._named(row) for row in rows], handle.schema))
        self.rows.update((row["id"], row) for row in rows)

    def delete(self, ids: set[int]) -> None:
        self._engine.open(self.ident).delete(among(ids))
        for row_id in ids:
            del self.rows[row_id]

    def compact(self) -> None:
        self._engine.open(self.ident).optimize.compact_files(target_rows_per_fragment=64)

    def index_input(self) -> None:
        self._engine.open(self.ident).create_scalar_index(self.names["x"], "BTREE", replace=True)

    def rename(self, column: str, *, past_the_catalog: bool) -> None:
        """A client gives a column another name."""
        self._next_name += 1
        self._rename({column: f"{column}_{self._next_name}"}, past_the_catalog=past_the_catalog)

    def swap(self, *, past_the_catalog: bool) -> None:
        """What was called x is called otherwise, and another column is called x, all in one commit."""
        self._next_name += 1
        used = self.names["x"]
        self._rename({"x": f"x_{self._next_name}", "spare": used}, past_the_catalog=past_the_catalog)

    def _rename(self, names: dict[str, str], *, past_the_catalog: bool) -> None:
        handle = self._engine.open(self.ident)
        if past_the_catalog:
            handle = lance.dataset(handle.uri)
        changes: list[Any] = [{"path": self.names[name], "name": new} for name, new in names.items()]
        handle.alter_columns(*changes)
        self.names |= names

    def clean_up(self, kept: int) -> None:
        """Keeps a few of the latest versions; lancedb's `optimize` leaves one."""
        handle = self._engine.open(self.ident)
        handle.cleanup_old_versions(timedelta(0), retain_versions=kept)
        left = {version["version"] for version in handle.versions()}
        self.versions = [version for version in self.versions if version in left]
        self.past = {version: state for version, state in self.past.items() if version in left}

    def restore(self, back: int) -> None:
        version = self.versions[max(0, len(self.versions) - 1 - back)]
        self._engine.open(self.ident).checkout_version(version).restore()
        rows, names = self.past[version]
        self.rows, self.names = _copied(rows), dict(names)

    def overwrite(self) -> None:
        """All rows are written once more by somebody who has read them before: the values stay."""
        handle = self._engine.open(self.ident)
        handle.insert(handle.to_table(), mode="overwrite")

    def add_column(self, *, is_filled: bool) -> None:
        self._next_column += 1
        name = f"extra{self._next_column}"
        handle = self._engine.open(self.ident)
        handle.add_columns({name: "id * 2"} if is_filled else pa.field(name, pa.int64()))
        for row_id, row in self.rows.items():
            row[name] = row_id * 2 if is_filled else None

    def picked(self, pick: int) -> set[int]:
        """Every third row, and never none if there are any: most writes should hit something."""
        return set(sorted(self.rows)[pick::3] or self.rows)

    def spared(self, pick: int) -> set[int]:
        """Rows to delete, few enough for the table to live on."""
        return set(sorted(self.rows)[pick + 2 :: 3])

    def of_fragment(self, number: int) -> set[int]:
        """Ids of one fragment's rows, unless it is the only one."""
        found = sorted(set(self.fragments.values()))
        if len(found) < 2:
            return set()
        wanted = found[number % len(found)]
        return {row_id for row_id, fragment in self.fragments.items() if fragment == wanted}

    def _new_rows(self, values: Sequence[Number]) -> pa.Table:
        ids, columns = [self._new_id() for _ in values], self._columns()
        for row_id, x in zip(ids, values, strict=True):
            self.rows[row_id] = {**dict.fromkeys(columns), "id": row_id, "x": x}
        spare = [100 + row_id for row_id in ids]
        for row_id, value in zip(ids, spare, strict=True):
            self.rows[row_id]["spare"] = value
        columns_now = {
            "id": ids,
            "x": pa.array(values, pa.int64()),
            "spare": pa.array(spare, pa.int64()),
            "note": pa.nulls(len(ids), pa.string()),
        }
        return pa.table({self.names[name]: column for name, column in columns_now.items()})

    def _named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {self.names.get(name, name): value for name, value in row.items()}

    def _columns(self) -> list[str]:
        """All there are now, by their first names."""
        if not hasattr(self, "ident"):
            return ["id", "x", "spare", "note"]
        logical = {actual: name for name, actual in self.names.items()}
        return [logical.get(name, name) for name in self._engine.open(self.ident).schema.names]

    def _commit(self, version: int, operation: LanceOperation.BaseOperation) -> None:
        with self._engine.lake.store.transaction() as tx:
            table = tx.tables.get(self.ident)
        namespace = CommittingNamespace(self._engine.lake.versions, table)
        lance.LanceDataset.commit(
            table.data_location,
            lance.Transaction(version, operation),
            namespace_client=namespace,
            table_id=namespace.table_id,
            namespace_client_managed_versioning=True,
        )

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1


def among(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids) or [-1]))})"


def _copied(rows: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row_id: dict(row) for row_id, row in rows.items()}
