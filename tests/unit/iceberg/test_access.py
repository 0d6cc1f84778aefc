"""Who may have which requests signed."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller, Permission
from tidemill.catalog.model.identifiers import Securable, TableIdent, table_ident
from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import PermissionDenied, Unsupported
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.iceberg.operations.access import RequestSigning
from tidemill.iceberg.operations.tables import IcebergTableOperations

IDENT = table_ident(("a", "t"))


class Readers:
    """Lets everybody read and nobody write."""

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        if permission is not Permission.READ:
            raise PermissionDenied(caller.principal, permission.value, str(resource))

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return True


class OneTable(IcebergTableOperations):
    def __init__(self) -> None:
        pass

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        return Entry(uuid4(), IDENT, EntryKind.TABLE, "", "m", b'{"location": "s3://b/t"}')


class Signer:
    def sign(self, location: str, request: SignRequest) -> SignedRequest:
        return SignedRequest(f"{location} {request.method}", {})


def sign(method: str, signer: Signer | None) -> SignedRequest:
    operations = RequestSigning(Readers(), OneTable(), signer)
    return operations.sign(LOCAL_CALLER, IDENT, SignRequest("r", method, "u", {}))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_readers_have_reads_signed_for_the_location_of_the_table(method: str) -> None:
    assert sign(method, Signer()).uri == f"s3://b/t {method}"


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_readers_have_nothing_else_signed(method: str) -> None:
    with pytest.raises(PermissionDenied):
        sign(method, Signer())


def test_without_a_signer_nothing_is_signed() -> None:
    with pytest.raises(Unsupported, match="Remote signing is not available"):
        sign("GET", None)
