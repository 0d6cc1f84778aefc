"""Keys of requests, and what is kept of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response

from tidemill.catalog.errors import ConcurrentModification, NamespaceNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, Securable
from tidemill.catalog.operations.receipts import Mutation, Need, Needs, ReceiptOperations
from tidemill.errors import (
    InvalidInput,
    PayloadTooLarge,
    PermissionDenied,
    TidemillError,
    Unavailable,
    Unprocessable,
    Unsupported,
)
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.idempotency import idempotency_key, mutation_route, resource_of
from tidemill.protocols.iceberg.responses import COMPRESS_FROM_BYTES, ReplayableResponse, replayable_json
from tidemill.store.engine import SqlStore, open_store

KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def call(*keys: str, parameters: Mapping[str, str] | None = None, **query: str) -> Call:
    raw = [(b"idempotency-key", key.encode("latin-1")) for key in keys]
    operations = cast(Operations, None)
    return Call(
        operations, LOCAL_CALLER, Limits(), parameters or {}, QueryParams(query), Headers(raw=raw), b""
    )


def test_a_request_without_a_key_has_none() -> None:
    assert idempotency_key(call()) is None


def test_a_key_is_the_same_in_either_case() -> None:
    assert idempotency_key(call(KEY.upper())) == idempotency_key(call(KEY)) == KEY


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
        "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "017f22e279b07cc398c4dc0c0c07398f",
        "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-78c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398\u00b9",
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_a_key_that_is_no_uuid_of_version_7_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        idempotency_key(call(key))


def test_two_keys_are_refused_even_if_they_are_the_same() -> None:
    with pytest.raises(InvalidInput, match="2 times"):
        idempotency_key(call(KEY, KEY))


def test_the_prefix_is_no_part_of_what_a_request_is_for() -> None:
    named = {"namespace": "a\x1fb", "table": "t/u"}
    with_prefix = {"prefix": "tidemill", **named}
    assert resource_of(call(parameters=with_prefix)) == resource_of(call(parameters=named)) == "a%1Fb/t%2Fu"


def test_names_cannot_be_shifted_into_each_other() -> None:
    one, other = {"namespace": "a/b", "table": "c"}, {"namespace": "a", "table": "b/c"}
    assert resource_of(call(parameters=one)) != resource_of(call(parameters=other))


def test_options_in_the_query_are_part_of_what_a_request_is_for() -> None:
    named = {"namespace": "a", "table": "t"}
    assert resource_of(call(parameters=named, purgeRequested="true")) != resource_of(call(parameters=named))


@given(
    st.integers(200, 599),
    st.one_of(
        st.binary(max_size=50), st.binary(min_size=COMPRESS_FROM_BYTES, max_size=COMPRESS_FROM_BYTES + 50)
    ),
    st.none() | st.text(),
    st.none() | st.text(),
    st.booleans(),
)
def test_an_answer_is_kept_whole(
    status: int, body: bytes, location: str | None, metadata_location: str | None, lacks_config: bool
) -> None:
    response = ReplayableResponse(status, body, location, metadata_location, ("a", "t"), lacks_config)
    assert ReplayableResponse.from_bytes(response.to_bytes()) == response


def test_a_large_answer_is_kept_small() -> None:
    assert len(ReplayableResponse(200, b"x" * 100_000).to_bytes()) < 1_000


class Judge:
    """Allows what is asked for until it is told not to."""

    is_strict = False

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        if self.is_strict:
            raise PermissionDenied(caller.principal, permission, str(resource))

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return not self.is_strict


def target_of(call: Call) -> NamespacePath:
    return NamespacePath(("a",))


def needs_of(path: NamespacePath) -> Needs:
    return [Need(Permission.WRITE, path)]


def counted(count: int) -> ReplayableResponse:
    return replayable_json({"count": count})


class Mutations:
    """Requests to change something, over a real store; `counted` is how often that was tried."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.judge = Judge()
        self.receipts = ReceiptOperations(store, self.judge, timedelta(minutes=30))
        self.counted = 0
        self.fault: TidemillError | None = None

    def send(self, *keys: str, principal: str = "me", body: bytes = b"", operation: str = "op") -> Response:
        operations = cast(Operations, SimpleNamespace(receipts=self.receipts))
        raw = [(b"idempotency-key", key.encode()) for key in keys]
        sent = Call(operations, Caller(principal), Limits(), {}, QueryParams(), Headers(raw=raw), body)
        return mutation_route(operation, target_of, needs_of, counted)(self._run)(sent)

    def _run(self, call: Call, path: NamespacePath, change: Mutation[int]) -> int:
        self.counted += 1
        with self.store.transaction() as tx:
            change.record(tx, self.counted)
            if self.fault is not None:
                raise self.fault
        return self.counted


@pytest.fixture
def mutations(tmp_path: Path) -> Iterator[Mutations]:
    store = open_store(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield Mutations(store)
    store.close()


def test_without_a_key_every_request_is_carried_out(mutations: Mutations) -> None:
    assert [mutations.send().body, mutations.send().body] == [b'{"count":1}', b'{"count":2}']


def test_with_a_key_the_first_answer_is_given_again(mutations: Mutations) -> None:
    assert [mutations.send(KEY).body, mutations.send(KEY.upper()).body] == [b'{"count":1}', b'{"count":1}']


def test_a_caller_that_has_lost_its_permissions_is_told_nothing(mutations: Mutations) -> None:
    mutations.send(KEY)
    mutations.judge.is_strict = True
    with pytest.raises(PermissionDenied):
        mutations.send(KEY)


def test_a_refusal_for_want_of_permissions_is_not_final(mutations: Mutations) -> None:
    mutations.judge.is_strict = True
    with pytest.raises(PermissionDenied):
        mutations.send(KEY)
    mutations.judge.is_strict = False
    assert mutations.send(KEY).body == b'{"count":1}'


@pytest.mark.parametrize(
    "fault", [Unavailable("busy"), PayloadTooLarge("It", 1), PermissionDenied("me", "write", "a")]
)
def test_what_may_be_different_next_time_is_tried_again(mutations: Mutations, fault: TidemillError) -> None:
    mutations.fault = fault
    with pytest.raises(type(fault)):
        mutations.send(KEY)
    mutations.fault = None
    assert mutations.send(KEY).body == b'{"count":2}'


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (InvalidInput("name", "is missing"), 400),
        (NamespaceNotFound(NamespacePath(("a",))), 404),
        (Unsupported("not here"), 406),
        (ConcurrentModification("too late"), 409),
        (Unprocessable("contradiction"), 422),
    ],
)
def test_a_refusal_that_would_come_again_is_final(
    mutations: Mutations, fault: TidemillError, status: int
) -> None:
    mutations.fault = fault
    first = mutations.send(KEY)
    mutations.fault = None
    again = mutations.send(KEY)
    assert (again.status_code, again.body) == (first.status_code, first.body)
    assert (first.status_code, mutations.counted) == (status, 1)


@pytest.mark.parametrize("other", [{"principal": "you"}, {"body": b"{}"}, {"operation": "other"}])
def test_a_key_is_bound_to_the_request_it_came_with(mutations: Mutations, other: dict[str, Any]) -> None:
    mutations.send(KEY)
    with pytest.raises(Unprocessable):
        mutations.send(KEY, **other)
    assert mutations.counted == 1


def test_a_request_that_comes_second_gets_the_answer_of_the_first(mutations: Mutations) -> None:
    """Both have looked for a receipt before either has left one."""
    operations = cast(Operations, SimpleNamespace(receipts=mutations.receipts))
    raw = [(b"idempotency-key", KEY.encode())]
    sent = Call(operations, Caller("me"), Limits(), {}, QueryParams(), Headers(raw=raw), b"")

    def overtaken(call: Call, path: NamespacePath, change: Mutation[int]) -> int:
        mutations.send(KEY)
        with mutations.store.transaction() as tx:
            change.record(tx, 99)
        raise AssertionError("the receipt was taken twice")

    assert mutation_route("op", target_of, needs_of, counted)(overtaken)(sent).body == b'{"count":1}'
    assert mutations.counted == 1
