"""A private PostgreSQL for tests: its own folder, its own socket, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

INSTALLED_UNDER: Final = Path("/usr/lib/postgresql")
UNPRIVILEGED_USERS: Final = ("postgres", "nobody")
SERVER_OPTIONS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "150",
    "shared_buffers": "32MB",
}
# A locale that does not sort by bytes shows any query that forgot to ask for it.
LOCALES: Final = (("--locale-provider=icu", "--icu-locale=en-US"), ())
START_TIMEOUT_SECONDS: Final = 30


class PostgresMissing(Exception):
    """There is no PostgreSQL to start here; says what is missing."""


class PostgresCluster:
    """A running server; every database in it is the caller's."""

    def __init__(self) -> None:
        binaries = _find_binaries() or _install()
        self._binaries = binaries
        self._identity = _unprivileged_identity()
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-pg-"))
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self._folder}"

    def create_database(self, name: str) -> None:
        self.execute(f'CREATE DATABASE "{name}"')

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def execute(self, statements: str, database: str = "postgres") -> None:
        with psycopg.connect(
            host=str(self._folder), user="postgres", dbname=database, autocommit=True
        ) as connection:
            connection.execute(statements)

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        if "user" in self._identity:
            os.chown(self._folder, self._identity["user"], self._identity["group"])
        self._initialise()
        options = [f"-c{name}={value}" for name, value in SERVER_OPTIONS.items()]
        command = [str(self._binaries / "postgres"), "-D", self._data, "-k", str(self._folder), *options]
        with (self._folder / "server.log").open("wb") as log:
            self._server = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, **self._identity
            )
        self._wait_until_ready()

    def _initialise(self) -> None:
        failure = ""
        for locale in LOCALES:
            command = ["-D", self._data, "-U", "postgres", "-E", "UTF8", "--auth=trust", "--no-sync", *locale]
            ended = self._run("initdb", command)
            if ended.returncode == 0:
                return
            failure = ended.stdout
        raise PostgresMissing(f"initdb in {self._binaries} failed: {failure.strip()}")

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                ended = self._server is not None and self._server.poll() is not None
                if ended or time.monotonic() > give_up_at:
                    log = (self._folder / "server.log").read_text(errors="replace")
                    raise PostgresMissing(f"postgres in {self._binaries} does not start: {log}") from None
                time.sleep(0.05)
            else:
                return

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._identity,
        )


def _find_binaries() -> Path | None:
    on_path = shutil.which("initdb")
    candidates = sorted(INSTALLED_UNDER.glob("*/bin"), key=lambda folder: folder.parent.name, reverse=True)
    if on_path is not None:
        candidates.insert(0, Path(on_path).resolve().parent)
    return next((folder for folder in candidates if _is_complete(folder)), None)


def _is_complete(folder: Path) -> bool:
    return (folder / "initdb").is_file() and (folder / "postgres").is_file()


def _install() -> Path:
    """Only in CI, as root, with apt: nobody's own machine is changed."""
    where = f"initdb and postgres are neither on PATH nor in {INSTALLED_UNDER}/*/bin"
    if os.environ.get("CI") != "true" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PostgresMissing(f"PostgreSQL is missing: {where}")
    subprocess.run(["apt-get", "update", "-q"], check=False)
    subprocess.run(["apt-get", "install", "-y", "-q", "postgresql"], check=False)
    found = _find_binaries()
    if found is None:
        raise PostgresMissing(f"PostgreSQL is missing after apt-get install: {where}")
    return found


def _unprivileged_identity() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in UNPRIVILEGED_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise PostgresMissing(f"PostgreSQL refuses to run as root, and there is no user {UNPRIVILEGED_USERS}")
