"""How options of jobs are declared, and what is derived from their declarations.

An option is declared once, as a field of a request in `tidemill.jobs.model.options`: its type and default are
those of the field, and `option(...)` in the field's metadata says the rest. Everything else is derived:

- how it is read from a request body: `read_options`
- how it is stored: `tidemill.store.column_types`, from the types alone
- the options of commands and their help: `tidemill.cli.options`
- the tables in `docs/protocols/management.md`: `make docs`

Only the SDK writes its arguments out, so that editors and type checkers know them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemill.catalog.model.json_values import (
    MAX_INTEGER,
    checked_expression,
    checked_flag,
    checked_integer,
    checked_number,
    checked_text,
    checked_texts,
    read_choice,
)
from tidemill.errors import InvalidInput

OPTION: Final = "option"

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Shorthand:
    """A flag that stands for one value of an option, as `full` does for `policy="full"`."""

    name: str
    value: Enum
    help: str


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `name` is what bodies and the SDK call it, `flag` what commands do.

    `hint_for` says where it cannot act. It is accepted there, because clients send the same tuning to every
    kind of view and column; so only an option that does not change the result may have it.
    The last four are those of its field.
    """

    help: str
    name: str = ""
    alias: str | None = None
    minimum: int = 0
    maximum: int | None = None
    is_expression: bool = False
    shorthand: Shorthand | None = None
    flag: str = ""
    since: str = "0.1"
    hint_for: str = ""
    field: str = ""
    kind: Any = str
    default: Any = None
    is_required: bool = False

    @property
    def meaning(self) -> str:
        """What users read about it."""
        hint = f" Accepted as a hint, without effect, for {self.hint_for}." if self.hint_for else ""
        return self.help + hint

    @property
    def names(self) -> tuple[str, ...]:
        """Every key of a body that says something about it."""
        others = (self.alias, None if self.shorthand is None else self.shorthand.name)
        return (self.name, *(name for name in others if name is not None))


def option(
    help: str,
    *,
    name: str = "",
    alias: str | None = None,
    minimum: int = 0,
    maximum: int | None = None,
    is_expression: bool = False,
    shorthand: Shorthand | None = None,
    flag: str = "",
    since: str = "0.1",
    hint_for: str = "",
) -> Mapping[str, Option]:
    """Metadata of a field; without a name it is the field's, and the flag is made from it.

    Args:
        help: One sentence or two, read by users of the API and of the command line.
        alias: Another name that clients send.
        minimum: For numbers, as is `maximum`.
        is_expression: Text in the query language.
        since: The first release that has it.
        hint_for: Where it is accepted although it cannot act.
    """
    return {
        OPTION: Option(help, name, alias, minimum, maximum, is_expression, shorthand, flag, since, hint_for)
    }


def options_of(kind: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in the order of its fields."""
    hints = get_type_hints(kind)
    return tuple(
        replace(
            declared,
            name=declared.name or field.name,
            flag=declared.flag or f"--{(declared.name or field.name).replace('_', '-')}",
            field=field.name,
            kind=without_none(hints[field.name]),
            default=None if field.default is MISSING else field.default,
            is_required=field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
        if (declared := field.metadata.get(OPTION)) is not None
    )


def read_options(
    kind: type[ValueT], body: Mapping[str, Any], *, inside: str = "", also_known: Collection[str] = ()
) -> ValueT:
    """The request that a JSON object describes; null is the same as absent.

    Raises InvalidInput with the field, and for every key that neither is an option nor `also_known`.
    """
    options = options_of(kind)
    known = {name for declared in options for name in declared.names}.union(also_known)
    for key, value in body.items():
        if key not in known and value is not None:
            raise InvalidInput(_path(inside, key)[:200], "is not known here")
    return kind(**dict(_values(options, body, inside)))


def _values(options: Collection[Option], body: Mapping[str, Any], inside: str) -> Iterator[tuple[str, Any]]:
    for declared in options:
        value = _with_shorthand(declared, _with_alias(declared, body, inside), body, inside)
        if declared.is_required and not value:
            problem = "is missing; it must be a non-empty string"
            raise InvalidInput(_path(inside, declared.name), problem)
        if value is not None:
            yield declared.field, value


def _with_alias(declared: Option, body: Mapping[str, Any], inside: str) -> Any:
    value = _value(declared, body.get(declared.name), _path(inside, declared.name))
    if declared.alias is None:
        return value
    other = _value(declared, body.get(declared.alias), _path(inside, declared.alias))
    if value is not None and other is not None and value != other:
        problem = f"{other} is not {declared.name}, {value}; give one of them"
        raise InvalidInput(_path(inside, declared.alias), problem)
    return other if value is None else value


def _with_shorthand(declared: Option, value: Any, body: Mapping[str, Any], inside: str) -> Any:
    short = declared.shorthand
    if short is None or body.get(short.name) is None:
        return value
    if not checked_flag(body[short.name], _path(inside, short.name)):
        return value
    if value not in (None, short.value):
        problem = f"excludes {declared.name}={value}; give one of them"
        raise InvalidInput(_path(inside, short.name), problem)
    return short.value


def _value(declared: Option, value: Any, field: str) -> Any:
    """Other types read themselves, as `ErrorPolicy` does."""
    kind = declared.kind
    if value is None:
        return None
    if kind is int:
        maximum = MAX_INTEGER if declared.maximum is None else declared.maximum
        return checked_integer(value, field, declared.minimum, maximum)
    if kind is float:
        return checked_number(value, field, declared.minimum, declared.maximum)
    if kind is bool:
        return checked_flag(value, field)
    if kind == tuple[str, ...]:
        return checked_texts(value, field)
    if kind is str or issubclass(kind, Enum):
        return _text(declared, checked_text(value, field), field)
    return kind.from_json(value, field)


def _text(declared: Option, value: str, field: str) -> Any:
    if declared.kind is not str:
        return read_choice(declared.kind, value, field)
    return checked_expression(value, field) if declared.is_expression else value


def without_none(hint: Any) -> Any:
    """The type of an optional value."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    [kind] = [kind for kind in get_args(hint) if kind is not type(None)]
    return kind


def _path(inside: str, key: str) -> str:
    return f"{inside}.{key}" if inside else key
