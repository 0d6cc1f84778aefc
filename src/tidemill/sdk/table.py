"""Tables: their rows, their computed columns, and the views that can be made from them."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind, encode_envelope
from tidemill.sdk.data import as_reader
from tidemill.sdk.definitions import ChunkerDefinition, QueryDefinition
from tidemill.sdk.explain import Explanation, backfill_explanation
from tidemill.sdk.functions import function_of, signature_of
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job, get_job
from tidemill.sdk.knobs import backfill_body
from tidemill.sdk.names import dotted, url_id


class Table:
    """A table of the lake; nothing is read until it is asked for.

    In the examples, `docs` has the rows `{"id": 1, "text": "a tide"}` and `{"id": 2, "text": "the mill"}`.

    >>> docs.count_rows()
    2
    >>> docs.query(filter="id = 2", columns=["text"]).to_pylist()
    [{'text': 'the mill'}]
    """

    _kind = "table"

    def __init__(self, client: ServerClient, levels: tuple[str, ...]) -> None:
        self._client = client
        self.levels = levels

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._client.url}>"

    @property
    def name(self) -> str:
        """The name with the namespaces that hold it."""
        return dotted(self.levels)

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
        """Where the data is."""
        return str(self.describe()["location"])

    def describe(self) -> dict[str, Any]:
        """What the catalog says about it."""
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
        properties = {"uri": self._client.url}
        if self._client.api_key:
            properties["header.x-api-key"] = self._client.api_key
        # Asked here, a missing table is refused in the SDK's own words.
        self.describe()
        namespace = _lance_module("lance.namespace").RestNamespace(**properties)
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

    def add_column(self, name: str, function: Any, *, inputs: Sequence[str] | None = None) -> None:
        """Declares a column that a function fills; it is null until `backfill` has run.

        Args:
            name: The new column.
            function: Declared with `@tidemill.udf`: a function, a class or an instance of one.
            inputs: The columns it reads, in the order of its parameters; by default those of its declaration.

        >>> import tidemill
        >>> @tidemill.udf
        ... def letters(text: str) -> int:
        ...     return sum(character.isalpha() for character in text)
        >>> docs.add_column("letters", letters)
        >>> docs.schema.field("letters").type
        DataType(int64)
        """
        signature = signature_of(function)
        if signature.kind is FunctionKind.CHUNKER:
            raise TypeError(
                f"{signature.name} makes rows, not a value; use table.chunk({signature.name}) for a view"
            )
        chosen = tuple(inputs) if inputs is not None else signature.inputs
        if len(chosen) != len(signature.parameters):
            raise ValueError(
                f"{signature.name} takes {', '.join(signature.parameters)}; inputs= names {len(chosen)}"
            )
        self._post(
            "table", "add_columns", {"new_columns": [_virtual_column(name, function_of(function), chosen)]}
        )

    def backfill(self, column: str, *, idempotency_key: str | None = None, **knobs: Any) -> Job:
        """Starts a job that fills a computed column where it is missing or out of date.

        Args:
            column: A column declared with `add_column`.
            idempotency_key: The same key gives the same job instead of a second one.
            **knobs: `where` (an SQL condition: exactly these rows), `read_version`, `concurrency`,
                `num_frags`, `commit_granularity`, `checkpoint_size`, `min_checkpoint_size`,
                `max_checkpoint_size`, `batch_checkpoint_flush_interval_seconds`.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> job = docs.backfill("words").wait(timeout=120)
        >>> job.progress.computed
        2
        >>> docs.query(columns=["text", "words"]).to_pylist()
        [{'text': 'a tide', 'words': 2}, {'text': 'the mill', 'words': 2}]
        """
        body = {"column": column, **backfill_body(knobs)}
        path, params = self._client.object_path("table", self.levels, "backfill_column")
        answer = self._client.post(path, body, params=params, idempotency_key=idempotency_key)
        return get_job(self._client, answer["job_id"])

    def explain(self, column: str, **knobs: Any) -> Explanation:
        """What `backfill` with the same arguments would do now.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> docs.explain("words").rows
        2
        """
        encoded, params = url_id(self.levels)
        body = {"column": column, **backfill_body(knobs)}
        answer = self._client.post(f"/api/v1/tables/{encoded}/explain", body, params=params)
        return backfill_explanation(self.name, column, answer)

    def select(self, *names: str, **expressions: str) -> QueryDefinition:
        """Some columns and SQL expressions, as the definition of a view.

        >>> docs.select("id", shout="upper(text)").columns
        {'id': 'id', 'shout': 'upper(text)'}
        """
        return QueryDefinition(self).select(*names, **expressions)

    def where(self, condition: str) -> QueryDefinition:
        """The rows for which an SQL condition holds, as the definition of a view."""
        return QueryDefinition(self).where(condition)

    def chunk(self, function: Any, *, inputs: list[str] | None = None) -> ChunkerDefinition:
        """The rows that a chunker makes from each row, as the definition of a view."""
        return QueryDefinition(self).chunk(function, inputs=inputs)

    def _post(self, kind: str, action: str, body: Mapping[str, Any]) -> Any:
        path, params = self._client.object_path(kind, self.levels, action)
        return self._client.post(path, dict(body), params=params)


def _virtual_column(name: str, function: Function, inputs: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "virtual_column": {
            "input_columns": list(inputs),
            # The type of the column is the envelope's; saying it twice could only contradict.
            "outputs": [{"column": name, "struct_field": "", "nullable": True}],
            "image": "",
            "udf": base64.b64encode(encode_envelope(function)).decode(),
            "udf_name": function.name,
            "udf_version": function.digest,
            "udf_backend": "tidemill",
        },
    }


def _without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None or key == "vector"}


def _lance_module(name: str) -> Any:
    """Lance takes a second to import and most of the SDK does without it."""
    return importlib.import_module(name)
