"""Options of commands: groups that a command takes as one value, and those that job requests declare.

`Target` chooses the server: an address, or the server that runs under a root folder.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import typer

from tidemill.jobs.model.declarations import Option, options_of
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest
from tidemill.sdk.connection import DEFAULT_ROOT, connect, find_server
from tidemill.sdk.errors import ServerUnreachable
from tidemill.sdk.lake import Lake
from tidemill.sdk.options import OnError, fail, retry, skip

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Name of the table, such as library.docs.")
]
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="Name of the computed column.")]
ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help="Name of the view, such as library.passages.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Return once the job is submitted.")]
BranchOption = Annotated[str | None, typer.Option("--branch", help="Branch of the table; main by default.")]
# What was given of the options of a request, by the names that the SDK has for them; failing rows apart.
BackfillOptions: TypeAlias = Annotated[dict[str, Any], BackfillRequest]
PreviewOptions: TypeAlias = Annotated[dict[str, Any], PreviewRequest]
RefreshOptions: TypeAlias = Annotated[dict[str, Any], RefreshRequest]
VerifyOptions: TypeAlias = Annotated[dict[str, Any], VerifyRequest]


def declared_option(kind: type, name: str, metavar: str | None = None) -> Any:
    """The option of a command that a dataclass declares under this name."""
    [found] = [option for option in options_of(kind) if option.name == name]
    return _typer_option(found, metavar)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a group of options replaced by its options."""
    signature = inspect.signature(command, eval_str=True)
    groups = {parameter.name: list(_group(parameter)) for parameter in signature.parameters.values()}
    makers = {name: _maker(parameter.annotation) for name, parameter in signature.parameters.items()}

    @functools.wraps(command)
    def called(*arguments: Any, **given: Any) -> None:
        for name, options in groups.items():
            if options:
                given[name] = makers[name](**{option.name: given.pop(option.name) for option in options})
        command(*arguments, **given)

    parameters = [
        option for name, options in groups.items() for option in options or [signature.parameters[name]]
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _group(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The options that a parameter stands for; none if it is no group."""
    kind = parameter.annotation
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            yield _parameter(field.name, hints[field.name], field.default)
    elif get_origin(kind) is Annotated and isinstance(request := get_args(kind)[1], type):
        for option in options_of(request):
            yield from _parameters(option)


def _parameters(option: Option) -> Iterator[inspect.Parameter]:
    """Required options are arguments, which commands name themselves; see `ErrorOptions` for failing rows."""
    if option.is_required or option.kind is ErrorPolicy:
        return
    kind = option.kind if option.default is not None else option.kind | None
    yield _parameter(option.name, Annotated[kind, _typer_option(option)], option.default)
    if option.shorthand is not None:
        flag = typer.Option(f"--{option.shorthand.name.replace('_', '-')}", help=option.shorthand.help)
        yield _parameter(option.shorthand.name, Annotated[bool, flag], default=False)


def _typer_option(option: Option, metavar: str | None = None) -> Any:
    low, high = (option.minimum, option.maximum) if option.kind in (int, float) else (None, None)
    repeated = " May be repeated." if get_origin(option.kind) is tuple else ""
    return typer.Option(option.flag, min=low, max=high, metavar=metavar, help=option.meaning + repeated)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _maker(kind: Any) -> Callable[..., Any]:
    return kind if is_dataclass(kind) else _arguments  # type: ignore[return-value]  # a class, not a value


def _arguments(**given: Any) -> dict[str, Any]:
    """Choices by their names, as the SDK takes them."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}


class OnErrorChoice(StrEnum):
    FAIL = "fail"
    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """How failing rows are handled."""

    on_error: Annotated[OnErrorChoice | None, declared_option(BackfillRequest, "on_error")] = None
    attempts: Annotated[int | None, declared_option(ErrorPolicy, "attempts")] = None
    backoff: Annotated[float | None, declared_option(ErrorPolicy, "backoff_seconds")] = None
    retry_on: Annotated[list[str] | None, declared_option(ErrorPolicy, "retry_on", "EXCEPTION")] = None
    max_skipped: Annotated[int | None, declared_option(ErrorPolicy, "max_skipped")] = None
    max_skipped_fraction: Annotated[float | None, declared_option(ErrorPolicy, "max_skipped_fraction")] = None

    def policy(self) -> OnError | None:
        """None if no option was given."""
        if self.on_error is OnErrorChoice.SKIP:
            return skip(self.max_skipped, self.max_skipped_fraction, self._retry())
        if self.max_skipped is not None or self.max_skipped_fraction is not None:
            raise typer.BadParameter("--max-skipped and --max-skipped-fraction need --on-error skip")
        return self._retry() or (fail() if self.on_error is OnErrorChoice.FAIL else None)

    def _retry(self) -> OnError | None:
        limits = {"attempts": self.attempts, "backoff": self.backoff, "on": self.retry_on or None}
        given = {name: value for name, value in limits.items() if value is not None}
        if self.on_error is OnErrorChoice.FAIL and given:
            raise typer.BadParameter("--attempts, --backoff and --retry-on are for --on-error retry or skip")
        if not given and self.on_error is not OnErrorChoice.RETRY:
            return None
        return retry(**given)  # type: ignore[arg-type]  # each name has its own type


UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="TIDEMILL_URL", help="Address of the server; takes precedence over --root."),
]
RootOption = Annotated[
    Path, typer.Option("--root", envvar="TIDEMILL_ROOT", help="Folder of a server on this machine.")
]
CredentialOption = Annotated[
    str | None,
    typer.Option(
        "--credential",
        envvar="TIDEMILL_CREDENTIAL",
        metavar="ID:SECRET",
        help="Credential of a client; other users can see command lines, so prefer the environment.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TIDEMILL_TOKEN",
        metavar="TOKEN",
        help="Bearer token instead of a credential; prefer the environment here, too.",
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="TIDEMILL_CA_FILE",
        help="Certificates, in PEM, to check an https:// server with instead of the well-known ones.",
    ),
]
ROOT = Path(DEFAULT_ROOT)


@dataclass(frozen=True, slots=True)
class Target:
    """The options that choose the server."""

    url: UrlOption = None
    root: RootOption = ROOT
    credential: CredentialOption = field(default=None, repr=False)
    token: TokenOption = field(default=None, repr=False)
    ca_file: CaFileOption = None

    def open(self) -> Lake:
        """The lake at the address, or of the server that runs under the root; starts none."""
        try:
            return connect(
                self.url or self._found(),
                credential=self.credential,
                token=self.token,
                ca_file=self.ca_file,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    def _found(self) -> str:
        found = find_server(self.root.absolute(), self.ca_file)
        if found is None:
            raise ServerUnreachable(
                f"No server runs under {self.root}; start one with 'tidemill serve --root {self.root}', "
                "or give --url"
            )
        return found
