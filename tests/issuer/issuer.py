"""A real OpenID issuer, Canaille, in an environment and a process of its own.

Users, groups and signing keys are as told. Tokens come from its token endpoint. The tests know its private
keys, so they can also sign what no issuer would.
"""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

FOLDER: Final = Path(__file__).parent
LOCK: Final = FOLDER / "requirements.lock"
ENVIRONMENT: Final = FOLDER.parent.parent / ".cache" / "issuer"
CLIENT: Final = {"client_id": "lake", "client_secret": "of the lake"}
PASSWORD: Final = "a password of tests"


@dataclass(frozen=True)
class SigningKey:
    key_id: str
    private: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65537, 2048), repr=False)

    def sign(self, claims: dict[str, Any], algorithm: str = "RS256", **header: Any) -> str:
        return jwt.encode(claims, self.private, algorithm, {"kid": self.key_id, **header})

    def sign_anything(self, claims: dict[str, Any]) -> str:
        """Also what the library refuses to sign as claims."""
        return jwt.PyJWS().encode(json.dumps(claims).encode(), self.private, "RS256", {"kid": self.key_id})

    def as_jwk(self) -> dict[str, Any]:
        # The issuer takes texts alone, so without `key_ops`.
        found = RSAAlgorithm.to_jwk(self.private, as_dict=True)
        return {name: value for name, value in found.items() if isinstance(value, str)} | {"kid": self.key_id}


@dataclass
class Issuer:
    """`restart` with another key is how it rotates them; its address stays."""

    key: SigningKey
    users: dict[str, list[str]]
    log: Path
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = self.port or free_port()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(installed_python()), str(FOLDER / "server.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdin is not None
        told = {"port": self.port, "keys": [self.key.as_jwk()], "users": self.users}
        self.process.stdin.write(json.dumps({**told, "client": CLIENT, "password": PASSWORD}) + "\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", f"the issuer did not start: {line!r}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def restart(self, key: SigningKey | None = None) -> None:
        self.stop()
        self.key = key or self.key
        self.start()
        self.wait()

    def token(self, user: str) -> str:
        """An access token of the user."""
        form = {"grant_type": "password", "username": user, "password": PASSWORD, "scope": "openid groups"}
        answer = httpx.post(f"{self.url}/oauth/token", data={**form, **CLIENT}, trust_env=False, timeout=60)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])


@contextmanager
def running_issuer(folder: Path, users: dict[str, list[str]]) -> Iterator[Issuer]:
    """With these users and their groups."""
    issuer = Issuer(SigningKey("corp"), users, folder / "issuer.log")
    try:
        issuer.start()
        issuer.wait()
        yield issuer
    finally:
        issuer.stop()


def installed_python() -> Path:
    """Canaille's package contains a package `tests`, so it cannot be in the environment of our tests."""
    python, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".stamp"
    ENVIRONMENT.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENT.parent / "issuer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = f"{LOCK.read_text()}{sys.version}"
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(ENVIRONMENT, clear=True, with_pip=False)
            install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
            subprocess.run([*install, "--require-hashes", "-r", str(LOCK)], check=True)
            stamp.write_text(wanted)
    return python


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found
