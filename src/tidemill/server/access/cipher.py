"""The secret key of the installation: encryption at rest, and keys derived for other purposes."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidemill.catalog.errors import OtherSecretKey
from tidemill.errors import InvalidInput
from tidemill.server.settings import ServerSettings

KEY_FILE: Final = "secret.key"


class InstallationCipher:
    """Authenticated encryption: `open` needs the same key and rejects modified data."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    def seal(self, value: bytes) -> bytes:
        return self._fernet.encrypt(value)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken as error:
            raise OtherSecretKey from error

    def derive(self, purpose: bytes) -> bytes:
        """Derives an independent key for another purpose."""
        return HKDF(SHA256(), 32, salt=None, info=purpose).derive(urlsafe_b64decode(self._key))

    @cached_property
    def _fernet(self) -> Fernet:
        return Fernet(self._key)

    @cached_property
    def _key(self) -> bytes:
        configured = self._settings.secret_key
        if configured is None:
            return _read_or_create_key(self._settings.root / KEY_FILE)
        try:
            Fernet(configured.encode())
        except ValueError as error:
            raise InvalidInput("secret_key", "must be 32 bytes in URL-safe base64") from error
        return configured.encode()


def _read_or_create_key(path: Path) -> bytes:
    """The first process that needs the key creates it. A link makes concurrent starters agree on one."""
    if not path.exists():
        # Only its owner can read a temporary file.
        with NamedTemporaryFile(dir=path.parent) as file:
            file.write(Fernet.generate_key())
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_bytes()
