"""A table that others write to: every write is done for real and on paper, and the two have to agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    )

    kind: str
    pick: int
    value: Number

    @property
    def is_in_place(self) -> bool:
        """Then a job cannot tell that its own value came after it, and may compute the row once more."""
        return self.kind.endswith("in place")


class PaperTable:
    """`rows` is what the table has to hold, by id; `identities` are the row ids the engine knows rows by."""

    def __init__(self, engine: Engine, values: Sequence[Number], *, has_stable_row_ids: bool) -> None:
        self._engine = engine
        self._next_id = 0
        self._next_note = 0
        self._next_column = 0
        self.rows: dict[int, dict[str, Any]] = {}
        self.identities: dict[int, int] = {}
        self.fragments: dict[int, int] = {}
        self.versions: list[int] = []
        create = engine.create_table if has_stable_row_ids else engine.create_foreign_table
        self.ident = create("t", self._new_rows(values))

    def read(self) -> set[int]:
        """Compares the table with the paper; returns the rows that have another identity than before."""
        dataset = self._engine.open(self.ident)
        found = dataset.scanner(with_row_id=True, with_row_address=True).to_table().to_pylist()
        before, self.identities = self.identities, {row["id"]: row.pop("_rowid") for row in found}
        self.fragments = {row["id"]: row.pop("_rowaddr") >> 32 for row in found}
        assert sorted(row["id"] for row in found) == sorted(self.rows), "rows were lost or doubled"
        for row in found:
            assert row == self.rows[row["id"]]
        if dataset.version not in self.versions:
            self.versions.append(dataset.version)
        return {row_id for row_id, known in before.items() if self.identities.get(row_id) != known}

    def values(self, column: str) -> dict[int, Number]:
        found = self._engine.rows(self.ident, columns=("id", column)).to_pylist()
        return {row["id"]: row[column] for row in found}

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
            case _:
                self.update_in_place(write.pick, write.kind[0], write.value)

    def append(self, values: Sequence[Number]) -> None:
        self._engine.append(self.ident, self._new_rows(values))

    def update(self, pick: int, column: str, value: Number) -> None:
        ids = self.picked(pick)
        text = "CAST(NULL AS BIGINT)" if value is None else str(value)
        self._engine.open(self.ident).update({column: text}, where=among(ids))
        for row_id in ids:
            self.rows[row_id][column] = value

    def update_in_place(self, pick: int, column: str, value: Number) -> None:
        """Columns of whole fragments are rewritten, and the rows stay where they are."""
        ids = self.picked(pick)
        handle = self._engine.open(self.ident)
        new = pa.table({"id": sorted(ids), column: pa.array([value] * len(ids), pa.int64())})
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
        self._engine.open(self.ident).update({column: column}, where=among(self.picked(pick)))

    def update_note(self, pick: int) -> None:
        ids, self._next_note = self.picked(pick), self._next_note + 1
        text = f"seen {self._next_note}"
        self._engine.open(self.ident).update({"note": f"'{text}'"}, where=among(ids))
        for row_id in ids:
            self.rows[row_id]["note"] = text

    def upsert(self, pick: int, values: Sequence[Number]) -> None:
        """Whole rows, as somebody has them who does not know of the computed columns."""
        ids = sorted(self.picked(pick))[: len(values)]
        handle = self._engine.open(self.ident)
        empty: dict[str, Any] = dict.fromkeys(handle.schema.names)
        rows = [{**empty, "id": row_id, "x": x} for row_id, x in zip(ids, values, strict=False)]
        rows += [{**empty, "id": self._new_id(), "x": x} for x in values[len(ids) :]]
        merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.Table.from_pylist(rows, handle.schema))
        self.rows.update((row["id"], row) for row in rows)

    def delete(self, ids: set[int]) -> None:
        self._engine.open(self.ident).delete(among(ids))
        for row_id in ids:
            del self.rows[row_id]

    def compact(self) -> None:
        self._engine.open(self.ident).optimize.compact_files(target_rows_per_fragment=64)

    def index_input(self) -> None:
        self._engine.open(self.ident).create_scalar_index("x", "BTREE", replace=True)

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
        columns = next(iter(self.rows.values()), None) or {}
        ids = [self._new_id() for _ in values]
        for row_id, x in zip(ids, values, strict=True):
            self.rows[row_id] = {**dict.fromkeys(self._columns(columns)), "id": row_id, "x": x}
        return pa.table(
            {"id": ids, "x": pa.array(values, pa.int64()), "note": pa.nulls(len(ids), pa.string())}
        )

    def _columns(self, known: Iterable[str]) -> list[str]:
        """A table without rows has columns, too."""
        made = [f"extra{number + 1}" for number in range(self._next_column)]
        declared = [name for name in COMPUTED if self.versions]
        return list(dict.fromkeys(["id", "x", "note", *declared, *made, *known]))

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
