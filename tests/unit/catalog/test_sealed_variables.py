"""Variables of environments, sealed and opened."""

from __future__ import annotations

import pytest

from tests.sealing import CipherInMemory
from tidemill.catalog.errors import OtherSecretKey
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.sealed_variables import PREFIX, opened_variables, sealed_variables

VALUES = {"KEY": "planted", "EMPTY": "", "TEXT": 'ä\n"', "LOOKS_SEALED": f"{PREFIX}gAAAA"}
ENVIRONMENT = Environment(("pillow",), VALUES)


def test_what_is_sealed_is_opened_whatever_it_looks_like() -> None:
    cipher = CipherInMemory()
    sealed = sealed_variables(ENVIRONMENT, cipher)
    assert opened_variables(sealed, cipher) == ENVIRONMENT
    assert sealed.packages == ENVIRONMENT.packages
    assert all(value.startswith(PREFIX) and "planted" not in value for value in sealed.variables.values())


def test_another_key_is_said_with_the_name_of_the_variable_and_what_to_do() -> None:
    sealed = sealed_variables(Environment(variables={"KEY": "planted"}), CipherInMemory())
    with pytest.raises(OtherSecretKey, match=r"variable KEY.*TIDEMILL_SECRET_KEY"):
        opened_variables(sealed, CipherInMemory())


def test_what_a_server_of_an_earlier_version_wrote_is_used() -> None:
    before = Environment(variables={"KEY": "planted"})
    assert opened_variables(before, CipherInMemory()) == before


def test_values_are_not_in_the_representation() -> None:
    assert "planted" not in repr(ENVIRONMENT)
