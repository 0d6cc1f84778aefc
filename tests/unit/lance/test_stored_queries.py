"""A query is stored by those who may write its name and read its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.grants import authorizer_of
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, Securable, table_ident
from tidemill.catalog.model.tables import StoredQuery, Table, TableKind
from tidemill.errors import PermissionDenied
from tidemill.lance.stored_queries import StoredQueryOperations
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import open_store

ADA = Caller("ada")
QUERY = StoredQuery(
    table=Table(uuid4(), table_ident(("home", "q")), "", TableKind.QUERY),
    statement="SELECT id FROM away.t",
    source=table_ident(("away", "t")),
    columns={"id": "id"},
    filter=None,
    limit=None,
    output=pa.schema([pa.field("id", pa.int64())]),
)


@pytest.mark.parametrize(
    ("home", "away", "missing"),
    [
        (Permission.READ, Permission.ADMIN, "'write' on home.q"),
        (Permission.ADMIN, None, "'read' on away.t"),
    ],
)
def test_storing_a_query_needs_both_permissions(
    tmp_path: Path, home: Permission, away: Permission | None, missing: str
) -> None:
    grants: dict[Securable, frozenset[Permission]] = {NamespacePath(("home",)): frozenset({home})}
    if away is not None:
        grants[NamespacePath(("away",))] = frozenset({away})
    no_data: Any = None
    operations = StoredQueryOperations(
        open_store("sqlite://"), authorizer_of({"ada": grants}), LocalTableFiles(tmp_path), no_data
    )
    with pytest.raises(PermissionDenied, match=missing):
        operations.create(ADA, QUERY, 1)
