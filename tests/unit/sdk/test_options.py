"""The arguments of methods that start jobs: as declared by the requests, and in the bodies that are sent."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_overloads, get_type_hints

import pytest

from tests.unit.sdk.noting import NotingServer
from tidemill.jobs.model.declarations import Option, options_of
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.sdk.options import Manifest, OnError, PolicyName, request_body, skip
from tidemill.sdk.table import Table
from tidemill.sdk.view import View

# Arguments that are no options of the request.
OWN_ARGUMENTS = {"self", "function", "idempotency_key", "timeout"}
EXPLAIN_REFRESH = get_overloads(View.explain)[1]
METHODS: list[tuple[Callable[..., Any], type, set[str]]] = [
    (Table.backfill, BackfillRequest, set()),
    (Table.retry_failed, BackfillRequest, {"where", "only", "retry_failed"}),
    (Table.explain, BackfillRequest, set()),
    (Table.preview, PreviewRequest, set()),
    (View.refresh, RefreshRequest, set()),
    (View.verify, VerifyRequest, set()),
    (EXPLAIN_REFRESH, RefreshRequest, set()),
    (View._explain_refresh, RefreshRequest, set()),
]
DOCUMENTED = [Table.backfill, Table.preview, View.refresh, View.verify]
every_method = pytest.mark.parametrize(
    ("method", "request_", "left_out"), METHODS, ids=lambda value: getattr(value, "__qualname__", None)
)


def declared(request: type) -> dict[str, tuple[Any, Any]]:
    """The type and the default that each argument has to have."""
    arguments: dict[str, tuple[Any, Any]] = {}
    for option in options_of(request):
        arguments[option.name] = (argument_type(option), argument_default(option))
        if option.shorthand is not None:
            arguments[option.shorthand.name] = (bool, False)
    return arguments


def argument_type(option: Option) -> Any:
    if option.is_required or isinstance(option.default, int):
        return option.kind
    if option.kind is ErrorPolicy:
        return OnError | PolicyName | None
    if option.name == "manifest":
        return Manifest | str | None
    if issubclass(option.kind, Enum):
        return Literal[tuple(choice.value for choice in option.kind)] | None
    return option.kind | None


def argument_default(option: Option) -> Any:
    """An argument that is left out is not sent, unless it is a plain number."""
    if option.is_required:
        return inspect.Parameter.empty
    return option.default if isinstance(option.default, int) else None


@every_method
def test_a_method_takes_the_options_that_its_request_declares(
    method: Callable[..., Any], request_: type, left_out: set[str]
) -> None:
    expected = {name: value for name, value in declared(request_).items() if name not in left_out}
    hints = get_type_hints(method)
    arguments = {
        name: (hints.get(name), parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if name not in OWN_ARGUMENTS and hints.get(name) is not type(None)
    }
    assert arguments == expected


@pytest.mark.parametrize("method", DOCUMENTED, ids=lambda method: method.__qualname__)
def test_every_argument_is_documented(method: Callable[..., Any]) -> None:
    arguments = (method.__doc__ or "").partition("Args:")[2].partition("Raises:")[0]
    described = re.findall(r"^ {12}(\w+): ", arguments, re.MULTILINE)
    assert described == [name for name in inspect.signature(method).parameters if name != "self"]


def test_names_of_policies_are_those_that_the_server_knows() -> None:
    for name in get_args(PolicyName):
        assert ErrorPolicy.from_json(name, "on_error")


def test_every_option_is_sent_under_its_name() -> None:
    forms = {"on_error": "skip", "manifest": "small", "policy": "incremental"}
    for request in (BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest):
        given = {name: forms.get(name, True) for name in declared(request)}
        assert request_body(request, given) == given


def test_what_was_not_given_is_not_sent() -> None:
    given = {"self": 1, "where": None, "concurrency": 2, "retry_failed": False}
    assert request_body(BackfillRequest, given) == {"concurrency": 2}
    assert request_body(RefreshRequest, {"output_limit": 0, "full": False}) == {"output_limit": 0}


@pytest.mark.parametrize("request_", [BackfillRequest, RefreshRequest])
def test_policies_and_manifests_are_sent_in_the_form_of_requests(request_: type) -> None:
    body = request_body(request_, {"on_error": skip(limit=3), "manifest": Manifest(pip=["numpy"])})
    assert body["on_error"]["max_skipped"] == 3
    assert body["manifest"] == '{"pip": ["numpy"], "env_vars": {}}'


def test_a_policy_is_one_of_three() -> None:
    assert request_body(RefreshRequest, {"policy": RefreshPolicy.FULL}) == {"policy": "full"}
    with pytest.raises(ValueError, match="policy= is one of 'auto', 'incremental', 'full', not 'ful'"):
        request_body(RefreshRequest, {"policy": "ful"})


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda lake, **options: lake.table("a").preview("words", **options), "concurrency"),
        (lambda lake, **options: lake.table("a").retry_failed("words", **options), "only"),
        (lambda lake, **options: lake.view("a").refresh(**options), "where"),
        (lambda lake, **options: lake.view("a").explain(**options), "where"),
        (lambda lake, **options: lake.view("a").explain("words", **options), "full"),
    ],
)
def test_an_option_of_another_job_is_refused_before_anything_is_sent(
    call: Callable[..., Any], name: str
) -> None:
    server = NotingServer()
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        call(server.lake(), **{name: 1})
    assert server.requests == []


def test_a_view_explains_the_backfill_of_a_column() -> None:
    plan = {"read_version": 3, "rows": 8, "rows_reused": 0, "fragments": 1, "commits": 1, "reason": "new"}
    server = NotingServer(explain=plan)
    server.lake().view("a.v").explain("words", where="id > 1")
    assert server.last() == ("/api/v1/tables/a$v/explain", {"column": "words", "where": "id > 1"})
