"""Merges, updates and deletes rows of Lance tables; each change is one version."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import sqlglot
from lance.dataset import MergeInsertBuilder
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import TransactionEffect
from tidemill.lance.datasets import CommittingNamespace, LanceTableData, TableNamespace
from tidemill.lance.evaluation.evaluator import Evaluator
from tidemill.lance.field_paths import get_field, sql_path
from tidemill.lance.filters import check_filter
from tidemill.lance.model.edits import EditResult, RowMerge, RowUpdate

# Lance retries an edit itself; all attempts together may take as long as a patient client waits.
CONFLICT_RETRIES: Final = 30
RETRY_TIMEOUT: Final = timedelta(seconds=60)

# The dialect that accepts every kind of quotes around names.
QUOTING: Final = "sqlite"
NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})


class LanceTableEdits:
    """Changes rows of Lance tables. Each change is a version committed through the catalog.

    `caller` is the principal whose change it is.
    """

    def __init__(self, data: LanceTableData, evaluator: Evaluator) -> None:
        self._data = data
        self._evaluator = evaluator

    def merge(self, caller: str, table: Table, rows: pa.Table, merge: RowMerge) -> EditResult:
        for condition, field in (
            (merge.update_condition, "when_matched_update_all_filt"),
            (merge.delete_condition, "when_not_matched_by_source_delete_filt"),
        ):
            if condition is not None:
                check_filter(condition, field)

        def write(namespace: CommittingNamespace) -> EditResult:
            return self._evaluator.write(caller, _merge, namespace, rows, merge)

        return self._data.commit(table, write, attempts=1)

    def update(
        self, caller: str, table: Table, update: RowUpdate, on_commit: TransactionEffect
    ) -> EditResult:
        """`on_commit` runs in the transaction of the version. It does not run if no row changes."""
        for path, expression in update.values.items():
            check_filter(expression, f"updates.{path}"[:200])
        if update.predicate is not None:
            check_filter(update.predicate, "predicate")

        def write(namespace: CommittingNamespace) -> EditResult:
            return self._evaluator.write(caller, _update, namespace, update)

        return self._data.commit(table, write, on_commit, field="updates", attempts=1)

    def delete(self, caller: str, table: Table, predicate: str) -> EditResult:
        check_filter(predicate, "predicate")

        def write(namespace: CommittingNamespace) -> EditResult:
            return self._evaluator.write(caller, _delete, namespace, predicate)

        return self._data.commit(table, write, field="predicate", attempts=1)


def _merge(namespace: TableNamespace, rows: pa.Table, merge: RowMerge) -> EditResult:
    dataset = namespace.open()
    keys = [_key(namespace.table.ident, dataset.schema, rows.schema, path) for path in merge.on]
    counts = _merge_builder(dataset.merge_insert(keys), merge).execute(rows)
    return EditResult(
        version=int(dataset.version),
        inserted=counts["num_inserted_rows"],
        updated=counts["num_updated_rows"],
        deleted=counts["num_deleted_rows"],
    )


def _update(namespace: TableNamespace, update: RowUpdate) -> EditResult:
    dataset = namespace.open()
    values = column_values(namespace.table.ident, dataset.schema, update.values)
    result = dataset.update(
        values,
        where=update.predicate,
        conflict_retries=CONFLICT_RETRIES,
        retry_timeout=RETRY_TIMEOUT,
    )
    return EditResult(int(dataset.version), updated=result["num_rows_updated"])


def _delete(namespace: TableNamespace, predicate: str) -> EditResult:
    dataset = namespace.open()
    result = dataset.delete(predicate, conflict_retries=CONFLICT_RETRIES, retry_timeout=RETRY_TIMEOUT)
    return EditResult(int(dataset.version), deleted=result["num_deleted_rows"])


def _key(ident: TableIdent, schema: pa.Schema, source: pa.Schema, path: str) -> str:
    """The column to match on. Lance matches whole columns and does not unquote names."""
    names, _ = get_field(ident, schema, path, "on")
    if len(names) > 1:
        raise InvalidInput("on", f"'{path}' is part of a column; rows are matched by whole columns")
    if names[0] not in source.names:
        raise InvalidInput("on", f"the rows have no column '{names[0]}'; they have {', '.join(source.names)}")
    return names[0]


def _merge_builder(builder: MergeInsertBuilder, merge: RowMerge) -> MergeInsertBuilder:
    if merge.updates_matched:
        builder = builder.when_matched_update_all(merge.update_condition)
    if merge.inserts_new:
        builder = builder.when_not_matched_insert_all()
    if merge.deletes_missing:
        builder = builder.when_not_matched_by_source_delete(merge.delete_condition)
    return (
        builder.conflict_retries(CONFLICT_RETRIES)
        .retry_timeout(merge.timeout or RETRY_TIMEOUT)
        .use_index(merge.uses_index)
    )


def column_values(ident: TableIdent, schema: pa.Schema, values: Mapping[str, str]) -> dict[str, str]:
    """New values by column. Lance sets whole columns, so updating a nested field rebuilds its struct."""
    changes: dict[str, Any] = {}
    for path, expression in values.items():
        names, _ = get_field(ident, schema, path, "updates")
        _add_change(changes, names, expression, path)
    for path, expression in values.items():
        names, _ = get_field(ident, schema, path, "updates")
        _check_independent(path, expression, {name.lower() for name in changes if name != names[0]})
    return {name: _value(schema.field(name), (name,), change) for name, change in changes.items()}


def _check_independent(path: str, expression: str, others: Set[str]) -> None:
    """Lance sets columns one after the other, in any order, so an expression might read old or new values."""
    try:
        tokens = sqlglot.tokenize(expression, read=QUOTING)
    except SqlglotError as error:
        raise InvalidInput("updates", f"'{path}' has an expression that cannot be read ({error})") from error
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        is_column = token.token_type in NAMES and not (
            (before is not None and before.token_type is TokenType.DOT)
            or (after is not None and after.token_type is TokenType.L_PAREN)
        )
        if is_column and token.text.lower() in others:
            raise InvalidInput(
                "updates",
                f"'{path}' reads '{token.text}', which is updated as well; send one update after the other",
            )


def _add_change(changes: dict[str, Any], names: tuple[str, ...], expression: str, path: str) -> None:
    for name in names[:-1]:
        changes = changes.setdefault(name, {})
        if not isinstance(changes, dict):
            raise InvalidInput("updates", f"'{path}' is part of another field that is updated as a whole")
    if names[-1] in changes:
        raise InvalidInput("updates", f"'{path}' is updated twice, or has a part that is updated as well")
    changes[names[-1]] = expression


def _value(field: pa.Field, names: tuple[str, ...], change: Any) -> str:
    if isinstance(change, str):
        return change
    if not pa.types.is_struct(field.type):
        raise InvalidInput("updates", f"'{sql_path(names)}' has no fields that can be updated separately")
    members = (
        f"{_literal(member.name)}, {_value(member, path, change.get(member.name, sql_path(path)))}"
        for member, path in ((member, (*names, member.name)) for member in field.type)
    )
    return f"named_struct({', '.join(members)})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
