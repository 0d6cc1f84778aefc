"""Variables of environments are sealed from the request that brings them to the task that needs them.

A value is sealed when an environment is read from a request, and opened by the worker right before it ships
a stage to its tasks. In between, in rows of environments, views and jobs, in stages, logs and error messages,
there is only ciphertext. Names stay readable: they are listed, and they are no secrets.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemill.catalog.errors import OtherSecretKey
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.ports import Cipher

PREFIX: Final = "sealed:"


def sealed_variables(environment: Environment, cipher: Cipher) -> Environment:
    """The environment with every value sealed, whatever it looks like."""
    return replace(
        environment, variables={name: seal(value, cipher) for name, value in environment.variables.items()}
    )


def opened_variables(environment: Environment, cipher: Cipher) -> Environment:
    """The environment as its functions find it; raises OtherSecretKey.

    A server of an earlier version may still be running and write values as they are.
    """
    opened = {name: _open(name, value, cipher) for name, value in environment.variables.items()}
    return replace(environment, variables=opened)


def has_clear_text(variables: Mapping[str, str]) -> bool:
    return any(not value.startswith(PREFIX) for value in variables.values())


def seal(value: str, cipher: Cipher) -> str:
    return PREFIX + urlsafe_b64encode(cipher.seal(value.encode())).decode()


def _open(name: str, value: str, cipher: Cipher) -> str:
    if not value.startswith(PREFIX):
        return value
    try:
        return cipher.open(urlsafe_b64decode(value.removeprefix(PREFIX))).decode()
    except OtherSecretKey as error:
        raise OtherSecretKey(f"the variable {name}") from error
