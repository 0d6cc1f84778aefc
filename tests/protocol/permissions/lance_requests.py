"""Requests of the Lance protocol about the objects that most rows are about."""

from __future__ import annotations

from typing import Any

from tests.protocol.permissions.matrix import HOME, Preparation, on, request
from tests.protocol.permissions.objects import new_name


def new(body: Any = None, **options: Any) -> Preparation:
    """About a name at home that nothing has yet."""
    return lambda objects: on(f"{HOME}${new_name()}", body, **options)


def fresh(body: Any = None, **options: Any) -> Preparation:
    """About a table of its own."""
    return lambda objects: on(objects.ident(HOME), body, **options)


def still(body: Any = None, **options: Any) -> Preparation:
    """About a table that stays as it is."""
    return lambda objects: on(objects.still, body, **options)


def home(body: Any = None, **options: Any) -> Preparation:
    """About the namespace itself."""
    return lambda objects: on(HOME, body, **options)


def nothing(body: Any = None, **options: Any) -> Preparation:
    """About what the body names, or the whole server."""
    return lambda objects: request(body, **options)
