"""A cipher with a key of its own, for tests without an installation."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken

from tidemill.catalog.errors import OtherSecretKey


class CipherInMemory:
    def __init__(self) -> None:
        self._fernet = Fernet(Fernet.generate_key())

    def seal(self, value: bytes) -> bytes:
        return self._fernet.encrypt(value)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken as error:
            raise OtherSecretKey from error
