"""TLS: who can listen in, hold connections, or speak without it; and certificates that change."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

import tidemill
from tests.conftest import RunningServer, start_server
from tidemill.cli.main import app
from tidemill.errors import InvalidInput
from tidemill.sdk.errors import ServerUnreachable
from tidemill.server.tls import Certificates

HEALTH: Final = "/api/v1/health"
HEADER_SECONDS: Final = 2
PER_ADDRESS: Final = 20


class Authority:
    """A private certificate authority."""

    def __init__(self, folder: Path) -> None:
        self._key = generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of tests")])
        self.file = folder / "authority.pem"
        self.file.write_bytes(self._certificate(self._name, self._key).public_bytes(Encoding.PEM))

    def issue(self, folder: Path, name: str) -> int:
        """Writes `certificate.pem` and `key.pem`; returns the serial number."""
        key = generate_private_key(SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(subject, key)
        contents = {
            "certificate.pem": certificate.public_bytes(Encoding.PEM),
            "key.pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        }
        for file, content in contents.items():
            staged = folder / f"{file}.new"
            staged.write_bytes(content)
            staged.replace(folder / file)
        return certificate.serial_number

    def _certificate(self, subject: x509.Name, key: object) -> x509.Certificate:
        is_own = subject == self._name
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())  # type: ignore[attr-defined]  # of an elliptic curve
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_own, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
                ),
                critical=False,
            )
        )
        return builder.sign(self._key, SHA256())


@dataclass(frozen=True)
class Secured:
    server: RunningServer
    authority: Authority
    folder: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.server.url)
        return parts.hostname or "", parts.port or 0

    def serial(self) -> int:
        """Of the certificate that a new connection gets."""
        context = ssl.create_default_context(cafile=self.authority.file)
        with (
            socket.create_connection(self.address, 30) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"").serial_number

    def get(self, path: str = HEALTH) -> httpx.Response:
        context = ssl.create_default_context(cafile=self.authority.file)
        return httpx.get(self.server.url + path, verify=context, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    authority.issue(folder, "first")
    server = start_server(
        folder / "root",
        "--no-worker",
        TIDEMILL_TLS_CERTIFICATE=str(folder / "certificate.pem"),
        TIDEMILL_TLS_KEY=str(folder / "key.pem"),
        TIDEMILL_PROCESSES="2",
        TIDEMILL_HEADER_SECONDS=str(HEADER_SECONDS),
        TIDEMILL_MAX_CONNECTIONS_PER_ADDRESS=str(PER_ADDRESS),
    )
    yield Secured(server, authority, folder)
    server.stop()


def test_the_server_says_that_it_speaks_https(secured: Secured) -> None:
    assert secured.server.url.startswith("https://127.0.0.1:")
    assert secured.server.url in (secured.server.root / "server.json").read_text()
    answer = secured.get()
    assert answer.status_code == 200
    assert answer.headers["strict-transport-security"].startswith("max-age=")


def test_nobody_without_the_authority_is_fooled(secured: Secured) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(secured.server.url + HEALTH, trust_env=False)
    with pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        tidemill.connect(secured.server.url)


def test_old_versions_of_tls_are_refused(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.authority.file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(secured.address, 30) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
        context.wrap_socket(plain, server_hostname="127.0.0.1"),
    ):
        pass


def test_plain_http_is_turned_away_at_once(secured: Secured) -> None:
    started = time.monotonic()
    with pytest.raises(httpx.TransportError):
        httpx.get(secured.server.url.replace("https", "http") + HEALTH, trust_env=False, timeout=30)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_handshake_that_never_ends_is_closed(secured: Secured, begun: bytes) -> None:
    with socket.create_connection(secured.address, 30) as plain:
        plain.sendall(begun)
        with suppress(ConnectionError):
            assert plain.recv(1) == b""


def test_connections_without_a_handshake_are_counted(secured: Secured) -> None:
    """Beyond the bound of both processes together they are closed, long before a handshake times out."""
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(secured.address, 30)) for _ in range(PER_ADDRESS * 4)
        ]
        closed = 0
        for connection in opened:
            connection.settimeout(0.01)
            try:
                closed += connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed += 1
        assert closed >= PER_ADDRESS
    until_healthy(secured)


def until_healthy(secured: Secured) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(httpx.TransportError):
            if secured.get().status_code == 200:
                return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_sdk_and_lance_trust_a_private_authority(secured: Secured) -> None:
    with tidemill.connect(secured.server.url, ca_file=secured.authority.file) as lake:
        lake.create_namespace("safe")
        table = lake.create_table("safe.docs", pa.table({"id": [1, 2, 3]}))
        assert table.count_rows() == 3
        assert table.to_lance().count_rows() == 3


def test_an_authority_without_certificates_is_refused(secured: Secured) -> None:
    with pytest.raises(ValueError, match="has no certificates"):
        tidemill.connect(secured.server.url, ca_file=secured.folder / "key.pem")


@pytest.mark.parametrize("by", ["url", "root"])
def test_the_command_line_trusts_a_private_authority(secured: Secured, by: str) -> None:
    found = {"url": secured.server.url, "root": str(secured.server.root)}[by]
    environment = {f"TIDEMILL_{by.upper()}": found, "TIDEMILL_CA_FILE": str(secured.authority.file)}
    listed = CliRunner().invoke(app, ["jobs", "list", "--json"], env=environment)
    assert listed.exit_code == 0, listed.output


def test_new_connections_get_a_new_certificate_without_a_restart(secured: Secured) -> None:
    before = secured.serial()
    context = ssl.create_default_context(cafile=secured.authority.file)
    with httpx.Client(base_url=secured.server.url, verify=context, trust_env=False, timeout=30) as kept:
        assert kept.get(HEALTH).status_code == 200
        renewed = secured.authority.issue(secured.folder, "second")
        deadline = time.monotonic() + 60
        # Both processes accept connections, and neither may answer with the old one for long.
        while {secured.serial() for _ in range(12)} != {renewed}:
            assert time.monotonic() < deadline
        assert renewed != before
        assert kept.get(HEALTH).status_code == 200


@pytest.mark.deep
def test_a_server_that_dies_is_replaced_by_one_with_the_same_certificate(secured: Secured) -> None:
    serial = secured.serial()
    state = secured.server.root / "server.json"
    died = json.loads(state.read_text())["pid"]
    os.kill(died, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while json.loads(state.read_text())["pid"] == died:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    until_healthy(secured)
    assert secured.serial() == serial
    assert json.loads(state.read_text())["url"] == secured.server.url


def test_a_certificate_that_cannot_be_used_does_not_replace_the_last_one(tmp_path: Path) -> None:
    Authority(tmp_path).issue(tmp_path, "good")
    now = [0.0]
    certificates = Certificates(tmp_path / "certificate.pem", tmp_path / "key.pem", lambda: now[0])
    first = certificates.context()
    (tmp_path / "certificate.pem").write_text("half a certificate")
    now[0] += 2
    assert certificates.context() is first
    shutil.copy(tmp_path / "authority.pem", tmp_path / "certificate.pem")
    now[0] += 2
    assert certificates.context() is first
    Authority(tmp_path).issue(tmp_path, "better")
    now[0] += 2
    assert certificates.context() is not first


def test_files_that_do_not_fit_together_are_refused_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue(tmp_path, "good")
    with pytest.raises(InvalidInput, match="tls_certificate: and tls_key cannot be used"):
        Certificates(authority.file, tmp_path / "key.pem")
    with pytest.raises(InvalidInput, match="tls_certificate"):
        Certificates(tmp_path / "missing.pem", tmp_path / "key.pem")
