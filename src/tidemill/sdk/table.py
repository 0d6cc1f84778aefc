"""Tables: their rows, their computed columns, and the views that can be made from them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemill.sdk.computed import ComputedColumns
from tidemill.sdk.data import as_reader
from tidemill.sdk.definitions import ChunkerDefinition, QueryDefinition
from tidemill.sdk.options import dependant_flags
from tidemill.sdk.status import Lineage, lineage


class Table(ComputedColumns):
    """A table of the lake; nothing is read until it is needed.

    In the examples, `docs` has the rows `{"id": 1, "text": "a tide"}` and `{"id": 2, "text": "the mill"}`.

    >>> docs.count_rows()
    2
    >>> docs.query(filter="id = 2", columns=["text"]).to_pylist()
    [{'text': 'the mill'}]
    """

    _kind = "table"

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are now."""
        return self.query(limit=0).schema

    @property
    def version(self) -> int:
        """The number of the latest version."""
        return int(self.describe()["version"])

    @property
    def location(self) -> str:
        """The location of the data."""
        return str(self.describe()["location"])

    def describe(self) -> dict[str, Any]:
        """The description of the table in the catalog."""
        return dict(self._post("table", "describe", {}))

    def count_rows(self, filter: str | None = None) -> int:
        """The number of rows, or of those for which an SQL condition holds.

        >>> docs.count_rows("text LIKE '%mill%'")
        1
        """
        return int(self._post("table", "count_rows", {"predicate": filter} if filter else {}))

    def add(self, data: Any) -> int:
        """Appends rows and returns how many; takes what `Lake.create_table` takes.

        >>> docs.add([{"id": 3, "text": "wheels and water"}])
        1
        """
        reader = as_reader(data, self.schema if isinstance(data, list | Mapping) else None)
        path, params = self._client.object_path("table", self.levels, "insert")
        answer = self._client.post_arrow(path, reader, params={**params, "mode": "append"})
        return int(answer["num_inserted_rows"])

    def query(
        self, *, filter: str | None = None, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.Table:
        """The rows for which an SQL condition holds, as an Arrow table."""
        body: dict[str, Any] = {"vector": None, "filter": filter, "k": limit}
        if columns is not None:
            body["columns"] = {"column_names": list(columns)}
        path, params = self._client.object_path("table", self.levels, "query")
        return self._client.post_for_arrow(path, _without_none(body), params=params)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.query()

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return self.query().to_pandas()

    def head(self, n: int = 5) -> pa.Table:
        """The first rows."""
        return self.query(limit=n)

    def to_lance(self) -> Any:
        """The table as a `lance.LanceDataset`; what is written through it is committed by the server.

        >>> dataset = docs.to_lance()
        >>> updated = dataset.update({"text": "'the old mill'"}, where="id = 2")
        >>> docs.query(filter="id = 2", columns=["text"]).to_pylist()
        [{'text': 'the old mill'}]
        """
        # Asked here, a missing table is refused in the SDK's own words.
        self.describe()
        namespace = _lance_module("lance.namespace").RestNamespace(**self._client.lance_properties())
        return _lance_module("lance").dataset(namespace_client=namespace, table_id=list(self.levels))

    def projected_schema(self, columns: Mapping[str, str] | None) -> pa.Schema:
        """The types that these columns or SQL expressions have."""
        if columns is None:
            return self.schema
        try:
            return self.to_lance().scanner(columns=dict(columns)).projected_schema
        except (ValueError, OSError) as error:
            # Lance adds the place in its source.
            problem = str(error).partition(", /")[0]
            raise ValueError(f"{self.name}: the columns cannot be read: {problem}") from error

    def drop_columns(
        self,
        columns: Sequence[str],
        *,
        cascade: bool = False,
        force: bool = False,
        branch: str | None = None,
    ) -> None:
        """Removes columns, or fields inside columns (`"a.b"`); refused if others read them.

        Computed columns of the table, views and stored queries may read a column. They read the main branch,
        so nothing is refused on another one.

        Args:
            columns: The names. Columns that one function fills together are dropped together.
            cascade: Also remove the computed columns, views and stored queries that read them.
            force: Remove just these; what reads them cannot be computed any more, and its status says why.
            branch: The branch of the table, by default `main`.

        >>> docs.drop_columns(["id"])
        >>> docs.schema.names
        ['text']
        """
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names, such as [{columns!r}]")
        path, params = self._client.object_path("table", self.levels, "drop_columns")
        body = {"columns": list(columns)} if branch is None else {"columns": list(columns), "branch": branch}
        self._client.post(path, body, params={**params, **dependant_flags(cascade=cascade, force=force)})

    def select(self, *names: str, **made: Any) -> QueryDefinition:
        """Some columns, and others that SQL expressions or functions make, as the definition of a view.

        A function is one declared with `@tidemill.udf`; it reads the columns named like its parameters, or
        those that `tidemill.bind` says.

        >>> docs.select("id", shout="upper(text)").columns
        {'id': 'id', 'shout': 'upper(text)'}
        """
        return QueryDefinition(self).select(*names, **made)

    def where(self, condition: str) -> QueryDefinition:
        """The rows for which an SQL condition holds, as the definition of a view."""
        return QueryDefinition(self).where(condition)

    def chunk(self, function: Any, *, inputs: list[str] | None = None) -> ChunkerDefinition:
        """The rows that a chunker makes from each row, as the definition of a view."""
        return QueryDefinition(self).chunk(function, inputs=inputs)

    def lineage(self, column: str | None = None) -> Lineage:
        """What the table, or one of its columns, is made from, and what is made from it.

        >>> view = lake.create_materialized_view("examples.copy", docs.select("text"))
        >>> [step.object for step in view.lineage().upstream]
        ['examples.docs']
        >>> [step.object for step in docs.lineage().downstream]
        ['examples.copy']
        """
        path, params = self._management_path("lineage")
        return lineage(self.name, self._client.get(path, {**params, "column": column}))


def _without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None or key == "vector"}


def _lance_module(name: str) -> Any:
    """Lance takes a second to import and most of the SDK does without it."""
    return importlib.import_module(name)
