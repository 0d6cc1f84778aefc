"""Adds, alters, drops and annotates columns of Lance tables; each change is one version.

`SchemaOperations` is what callers can do; `LanceTableSchemas` does it through pylance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction

from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import DependantPolicy, TableIdent, check_name
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import quoted
from tidemill.jobs.ports import JobTransaction, TransactionEffect
from tidemill.jobs.service.column_drops import ColumnDrops, DependantsChanged, PlannedDrop
from tidemill.jobs.service.columns import ColumnOperations
from tidemill.lance.datasets import (
    CommittingNamespace,
    TableNamespace,
    backoff,
    is_conflict,
    translated,
)
from tidemill.lance.evaluation.evaluator import Evaluator
from tidemill.lance.field_paths import get_field, parse_path, resolve_path
from tidemill.lance.filters import check_filter
from tidemill.lance.model.edits import ColumnAlteration, FieldMetadataUpdate, NewColumn, UpdatedFields
from tidemill.lance.versions.commit import VersionOperations

ATTEMPTS: Final = 40
# Prefixes of Lance's errors that are caused by values rather than storage.
VALUE_PROBLEMS: Final = ("Invalid user input: ", "LanceError(Arrow): ", "Not supported: ")

Changed = TypeVar("Changed")


class SchemaOperations:
    def __init__(
        self,
        authorizer: Authorizer,
        versions: VersionOperations,
        computed: ColumnOperations,
        drops: ColumnDrops,
        evaluator: Evaluator,
    ) -> None:
        self._authorizer = authorizer
        self._versions = versions
        self._schemas = LanceTableSchemas(versions, evaluator)
        self._computed = computed
        self._drops = drops

    def add_columns(
        self, caller: Caller, ident: TableIdent, branch: str, columns: Sequence[NewColumn]
    ) -> int:
        table = self._writable(caller, ident, branch)
        _check_new([column.name for column in columns])
        return self._schemas.add_columns(caller.principal, table, columns)

    def add_empty_columns(self, caller: Caller, ident: TableIdent, branch: str, fields: pa.Schema) -> int:
        """Adds columns of the given types, all NULL."""
        table = self._writable(caller, ident, branch)
        _check_new(fields.names)
        return self._schemas.add_empty_columns(table, fields)

    def alter_columns(
        self, caller: Caller, ident: TableIdent, branch: str, alterations: Sequence[ColumnAlteration]
    ) -> int:
        table = self._writable(caller, ident, branch)
        new_names: dict[str, str] = {}
        for index, alteration in enumerate(alterations):
            field = f"alterations[{index}]"
            segments = parse_path(alteration.path, f"{field}.path")
            if alteration.is_empty:
                raise InvalidInput(field, "changes nothing; give rename, nullable or data_type")
            if alteration.rename is not None:
                check_name(alteration.rename, f"{field}.rename")
                if len(segments) == 1:
                    new_names[segments[0]] = alteration.rename
        renaming = self._renaming(table, new_names)
        return self._schemas.alter_columns(caller.principal, table, alterations, renaming)

    def drop_columns(
        self,
        caller: Caller,
        ident: TableIdent,
        branch: str,
        paths: Sequence[str],
        policy: DependantPolicy = DependantPolicy.RESTRICT,
    ) -> int:
        """Raises HasDependants if others read them, unless the policy says what becomes of those.

        Computed columns and views read the main branch, so a drop on another one breaks nothing.
        """
        table = self._writable(caller, ident, branch)
        if not paths:
            raise InvalidInput("columns", "is empty; name at least one column")
        if table.branch != MAIN_BRANCH:
            return self._schemas.drop_columns(table, paths, _no_effect)
        schema = self._schemas.schema(table)
        fields = [get_field(ident, schema, path, "columns")[0] for path in dict.fromkeys(paths)]
        forget = self._computed.forgetting(table, _top_level(fields))
        if policy is DependantPolicy.FORCE:
            return self._schemas.drop_columns(table, paths, forget)
        for attempt in range(ATTEMPTS):
            drop = self._drops.plan(caller, table, fields, policy)
            try:
                return self._drop_with_dependants(table, paths, fields, drop)
            except DependantsChanged:
                backoff(attempt)
            finally:
                drop.remove_files()
        raise ConcurrentModification(f"What depends on {ident} changes too fast to drop columns; try again")

    def _drop_with_dependants(
        self, table: Table, paths: Sequence[str], fields: Sequence[tuple[str, ...]], drop: PlannedDrop
    ) -> int:
        forget = self._computed.forgetting(table, [*_top_level(fields), *drop.columns])
        added = [quoted(name) for name in drop.columns]
        return self._schemas.drop_columns(table, [*paths, *added], drop.on_commit(forget))

    def update_field_metadata(
        self, caller: Caller, ident: TableIdent, branch: str, updates: Sequence[FieldMetadataUpdate]
    ) -> UpdatedFields:
        table = self._writable(caller, ident, branch)
        if not updates:
            raise InvalidInput("updates", "is empty; name at least one field")
        return self._schemas.update_field_metadata(table, updates)

    def _renaming(self, table: Table, new_names: dict[str, str]) -> TransactionEffect:
        """Renames the bindings of functions, which exist only on main."""
        if not new_names or table.branch != MAIN_BRANCH:
            return _no_effect
        return self._computed.renaming(table, new_names)

    def _writable(self, caller: Caller, ident: TableIdent, branch: str) -> Table:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)
        return table


def _top_level(fields: Sequence[tuple[str, ...]]) -> list[str]:
    return [path[0] for path in fields if len(path) == 1]


def _check_new(names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput("new_columns", "is empty; name at least one column")
    for name in names:
        check_name(name, "name")
        if names.count(name) > 1:
            raise InvalidInput("new_columns", f"contains '{name}' twice")


def _no_effect(_: JobTransaction, __: int) -> None:
    return None


class LanceTableSchemas:
    """Each call commits one version and resolves conflicts with other writers."""

    def __init__(self, versions: VersionOperations, evaluator: Evaluator) -> None:
        self._versions = versions
        self._evaluator = evaluator

    def schema(self, table: Table) -> pa.Schema:
        namespace = CommittingNamespace(self._versions, table)
        with translated(table.ident, namespace):
            return namespace.open().schema

    def add_columns(self, caller: str, table: Table, columns: Sequence[NewColumn]) -> int:
        for index, column in enumerate(columns):
            check_filter(column.expression, f"new_columns[{index}].expression")

        def add(namespace: CommittingNamespace) -> int:
            return self._evaluator.write(caller, _add_columns, namespace, columns)

        return self._change(table, add, "new_columns")

    def add_empty_columns(self, table: Table, fields: pa.Schema) -> int:
        def add(namespace: CommittingNamespace) -> int:
            dataset = namespace.open()
            _check_absent(table.ident, dataset, fields.names)
            dataset.add_columns(fields)
            return int(dataset.version)

        return self._change(table, add, "new_columns")

    def alter_columns(
        self,
        caller: str,
        table: Table,
        alterations: Sequence[ColumnAlteration],
        on_commit: TransactionEffect,
    ) -> int:
        def alter(namespace: CommittingNamespace) -> int:
            return self._evaluator.write(caller, _alter_columns, namespace, alterations)

        return self._change(table, alter, "alterations", on_commit)

    def drop_columns(self, table: Table, paths: Sequence[str], on_commit: TransactionEffect) -> int:
        def drop(namespace: CommittingNamespace) -> int:
            dataset = namespace.open()
            columns = [resolve_path(table.ident, dataset.schema, path, "columns")[0] for path in paths]
            dataset.drop_columns(list(dict.fromkeys(columns)))
            return int(dataset.version)

        return self._change(table, drop, "columns", on_commit)

    def update_field_metadata(self, table: Table, updates: Sequence[FieldMetadataUpdate]) -> UpdatedFields:
        """Commits the operation itself: Lance's call cannot merge for one field and replace for another."""
        paths: list[str] = []

        def update(namespace: CommittingNamespace) -> LanceDataset:
            dataset = namespace.open()
            paths[:] = [
                resolve_path(table.ident, dataset.schema, item.path, f"updates[{index}].path")[0]
                for index, item in enumerate(updates)
            ]
            operation = LanceOperation.UpdateConfig(
                field_metadata_updates=_metadata_updates(dataset, paths, updates)
            )
            return LanceDataset.commit(
                table.data_location,
                Transaction(dataset.version, operation),
                max_retries=0,
                namespace_client=namespace,
                table_id=namespace.table_id,
                namespace_client_managed_versioning=True,
            )

        changed = self._change(table, update, "updates")
        fields = {path: _metadata(table.ident, changed.schema, path) for path in paths}
        return UpdatedFields(int(changed.version), fields)

    def _change(
        self,
        table: Table,
        change: Callable[[CommittingNamespace], Changed],
        field: str,
        on_commit: TransactionEffect | None = None,
    ) -> Changed:
        """Applies the change to the newest version, and again after each conflict.

        Raises ConcurrentModification.
        """
        for attempt in range(ATTEMPTS):
            namespace = CommittingNamespace(self._versions, table, on_commit)
            with translated(table.ident, namespace, field), _as_invalid_input(field):
                try:
                    return change(namespace)
                except OSError as error:
                    if namespace.failure is not None:
                        raise namespace.failure from error
                    if not (namespace.lost_race or is_conflict(error)):
                        raise
            backoff(attempt)
        raise ConcurrentModification(f"{table.ident} changes too fast to alter its columns; try again")


def _add_columns(namespace: TableNamespace, columns: Sequence[NewColumn]) -> int:
    dataset = namespace.open()
    _check_absent(namespace.table.ident, dataset, [column.name for column in columns])
    dataset.add_columns({column.name: column.expression for column in columns})
    return int(dataset.version)


def _alter_columns(namespace: TableNamespace, alterations: Sequence[ColumnAlteration]) -> int:
    dataset = namespace.open()
    changes = _alterations(namespace.table.ident, dataset.schema, alterations)
    dataset.alter_columns(*changes)  # type: ignore[arg-type]  # pylance's hint is of the whole tuple
    return int(dataset.version)


@contextmanager
def _as_invalid_input(field: str) -> Iterator[None]:
    """Raises InvalidInput for values that cannot be cast or computed."""
    try:
        yield
    except OSError as error:
        message = str(error).splitlines()[0].split(", /")[0]
        prefix = next((problem for problem in VALUE_PROBLEMS if message.startswith(problem)), None)
        if prefix is None or is_conflict(error):
            raise
        raise InvalidInput(field, message.removeprefix(prefix)[:300]) from error


def _check_absent(ident: TableIdent, dataset: LanceDataset, names: Sequence[str]) -> None:
    for name in names:
        if name in dataset.schema.names:
            raise InvalidInput("name", f"{ident} already has a column '{name}'")


def _alterations(
    ident: TableIdent, schema: pa.Schema, alterations: Sequence[ColumnAlteration]
) -> list[dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {}
    for index, alteration in enumerate(alterations):
        path, _ = resolve_path(ident, schema, alteration.path, f"alterations[{index}].path")
        if path in changes:
            raise InvalidInput(
                f"alterations[{index}].path", f"'{path}' is altered twice; put it into one entry"
            )
        values = {
            "name": alteration.rename,
            "nullable": alteration.nullable,
            "data_type": alteration.data_type,
        }
        changes[path] = {"path": path, **{key: value for key, value in values.items() if value is not None}}
    return list(changes.values())


def _metadata_updates(
    dataset: LanceDataset, paths: Sequence[str], updates: Sequence[FieldMetadataUpdate]
) -> dict[int, LanceOperation.UpdateMap]:
    maps: dict[int, LanceOperation.UpdateMap] = {}
    for index, (path, item) in enumerate(zip(paths, updates, strict=True)):
        field = dataset.lance_schema.field_case_insensitive(path)
        if field is None or field.id() in maps:
            raise InvalidInput(f"updates[{index}].path", f"'{path}' is updated twice; put it into one entry")
        values = item.metadata
        if item.is_replacement:
            values = {key: value for key, value in values.items() if value is not None}
        maps[field.id()] = LanceOperation.UpdateMap(updates=dict(values), replace=item.is_replacement)
    return maps


def _metadata(ident: TableIdent, schema: pa.Schema, path: str) -> Mapping[str, str]:
    _, field = resolve_path(ident, schema, path, "path")
    return {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
