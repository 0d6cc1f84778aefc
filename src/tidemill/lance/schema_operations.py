"""Operations on the columns of a table. Each change commits one version."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent, check_name
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.jobs.operations.columns import ColumnOperations
from tidemill.jobs.ports import JobTransaction, TransactionEffect
from tidemill.lance.field_paths import parse_path
from tidemill.lance.model.edits import ColumnAlteration, FieldMetadataUpdate, NewColumn, UpdatedFields
from tidemill.lance.schemas import LanceTableSchemas
from tidemill.lance.versions.commit import VersionOperations


class SchemaOperations:
    def __init__(
        self, authorizer: Authorizer, versions: VersionOperations, computed: ColumnOperations
    ) -> None:
        self._authorizer = authorizer
        self._versions = versions
        self._schemas = LanceTableSchemas(versions)
        self._computed = computed

    def add_columns(
        self, caller: Caller, ident: TableIdent, branch: str, columns: Sequence[NewColumn]
    ) -> int:
        table = self._writable(caller, ident, branch)
        _check_new([column.name for column in columns])
        return self._schemas.add_columns(table, columns)

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
        return self._schemas.alter_columns(table, alterations, self._renaming(table, new_names))

    def drop_columns(self, caller: Caller, ident: TableIdent, branch: str, paths: Sequence[str]) -> int:
        table = self._writable(caller, ident, branch)
        if not paths:
            raise InvalidInput("columns", "is empty; name at least one column")
        parsed = [parse_path(path, "columns") for path in paths]
        top_level = [segments[0] for segments in parsed if len(segments) == 1]
        on_commit = self._computed.forgetting(table, top_level) if table.branch == MAIN_BRANCH else _no_effect
        return self._schemas.drop_columns(table, paths, on_commit)

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


def _check_new(names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput("new_columns", "is empty; name at least one column")
    for name in names:
        check_name(name, "name")
        if names.count(name) > 1:
            raise InvalidInput("new_columns", f"contains '{name}' twice")


def _no_effect(_: JobTransaction, __: int) -> None:
    return None
