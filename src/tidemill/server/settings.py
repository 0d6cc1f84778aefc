"""Settings, read once from defaults, the environment and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidemill.catalog.model.access import Grant, Grantee, check_client_id, principal_grantee, role_grantee
from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR, namespace_path
from tidemill.catalog.operations.access import SettingsAccess
from tidemill.errors import InvalidInput
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.functions.isolation.sandbox import Limits
from tidemill.jobs.model.jobs import DEFAULT_CLUSTER, Clusters
from tidemill.jobs.worker.auto_jobs import AutoBackfillPolicy, AutoRefreshPolicy
from tidemill.jobs.worker.leases import LeasePolicy
from tidemill.lance.evaluation.bounds import QueryBounds
from tidemill.protocols.http.addresses import Networks
from tidemill.protocols.http.browsers import LOOPBACK
from tidemill.protocols.http.call import GIB, MIB
from tidemill.server.connections import ConnectionBounds
from tidemill.server.issuer_settings import IssuerSettings, check_issuers
from tidemill.spark.target import MASTERS, SparkTarget, is_master, slots_of
from tidemill.storage.warehouse import JOBS_DIRECTORY

# Characters that pass unchanged through a header.
SECRET: Final = re.compile(r"[!-~]+")
MIN_SECRET_LENGTH: Final = 16
DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
# Without those that mean something else in a path or query: + is a space, a comma is between names.
SEPARATORS: Final = "!#$&'()*-./:;<=>?@[]^_`{|}~"
CredentialSource = Literal["none", "static", "sts"]
FunctionIsolation = Literal["sandbox", "trusted", "none"]


def _digest(raw: str) -> str:
    if not DIGEST.fullmatch(raw):
        raise PydanticCustomError("digest", "must be the SHA-256 of the secret: 64 hexadecimal digits")
    return raw.lower()


def _everything() -> dict[str, tuple[Permission, ...]]:
    return {"": (Permission.ADMIN,)}


class ClientSettings(BaseModel):
    """Accepts `secret` instead of its digest, and keeps only the digest."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secret_sha256: Annotated[str, AfterValidator(_digest)] = Field(repr=False)
    grants: dict[str, tuple[Permission, ...]] = Field(default_factory=_everything)

    @model_validator(mode="before")
    @classmethod
    def _hash_secret(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        if ("secret" in raw) == ("secret_sha256" in raw):
            raise PydanticCustomError("secret", "give either secret or secret_sha256")
        if "secret" not in raw:
            return raw
        secret = raw["secret"]
        if not isinstance(secret, str) or not SECRET.fullmatch(secret):
            raise PydanticCustomError(
                "secret", "secret must consist of printable ASCII characters without spaces"
            )
        others = {key: value for key, value in raw.items() if key != "secret"}
        return {**others, "secret_sha256": sha256(secret.encode()).hexdigest()}

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.secret_sha256)


def _grants_to(grantee: Grantee, grants: Mapping[str, Sequence[Permission]], field: str) -> Iterator[Grant]:
    for dotted, permissions in grants.items():
        levels = tuple(dotted.split(".")) if dotted else ()
        path = namespace_path(levels, f"{field}.grants.{dotted!r:.200}")
        for permission in sorted(set(permissions)):
            yield Grant(grantee, permission, path)


class ClusterSettings(BaseModel):
    """A further cluster on which jobs can run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str
    config: dict[str, str] = Field(default_factory=dict)
    slots: int | None = Field(default=None, ge=1, description="Number of tasks it runs at a time.")


class ServerSettings(BaseSettings):
    """Environment variables are `TIDEMILL_` and the name in capitals, such as TIDEMILL_SPARK_MASTER."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEMILL_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    root: Path = Path("tidemill-data")
    host: str = "127.0.0.1"
    port: int = Field(default=8181, ge=0, le=65535)
    processes: int = Field(default=1, ge=1, le=64)
    listener: int | None = Field(
        default=None, description="File descriptor of a socket that another server process shares."
    )
    database_url: str | None = None
    warehouse: str | None = None
    warehouse_name: str = Field(
        default="tidemill", min_length=1, description="Name of the warehouse for Iceberg clients."
    )
    namespace_separator: str = Field(
        default=LEVEL_SEPARATOR, description="What Iceberg clients put between the levels of a namespace."
    )
    idempotency_lifetime_seconds: int = Field(default=1800, ge=1)
    allowed_locations: tuple[Path, ...] = ()
    s3_vend: CredentialSource = "none"
    s3_remote_signing: bool = False
    s3_role_arn: str | None = None
    s3_client_access_key_id: str | None = None
    s3_client_secret_access_key: str | None = Field(default=None, repr=False)
    secret_key: str | None = Field(default=None, repr=False)
    clients: dict[str, ClientSettings] = Field(default_factory=dict)
    oidc_issuers: tuple[IssuerSettings, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="More names by which a server without authentication can be reached."
    )
    token_lifetime_seconds: int = Field(default=3600, ge=1, le=31_536_000)
    failed_logins_per_address: int = Field(default=20, ge=1)
    failed_logins_per_client: int = Field(default=100, ge=1)
    trusted_proxies: tuple[str, ...] = ()
    audit_rows: bool = Field(default=True, description="Whether audit events are stored.")
    audit_lines: bool = Field(default=True, description="Whether audit events are logged.")
    audit_retention_days: int = Field(default=90, ge=0, description="0 keeps audit events for ever.")
    audit_refusals_per_minute: int = Field(default=60, ge=1)
    max_header_bytes: int = Field(default=64 * 1024, ge=1024)
    max_header_fields: int = Field(default=128, ge=16)
    header_seconds: float = Field(default=30, gt=0)
    body_seconds: float = Field(default=3600, gt=0)
    stall_seconds: float = Field(default=30, gt=0)
    min_bytes_per_second: int = Field(default=1024, ge=0)
    max_connections: int = Field(default=4096, ge=1)
    max_connections_per_address: int = Field(default=512, ge=1)
    max_json_bytes: int = Field(default=MIB, ge=1024)
    max_arrow_bytes: int = Field(default=GIB, ge=1024)
    max_decoded_arrow_bytes: int = Field(default=512 * MIB, ge=1024)
    query_processes: int = Field(default=8, ge=0, le=256)
    query_memory_bytes: int = Field(default=2 * GIB, ge=64 * MIB)
    query_result_bytes: int = Field(default=GIB, ge=1024)
    query_seconds: float = Field(default=300, gt=0)
    query_queue_seconds: float = Field(default=30, gt=0)
    with_worker: bool = True
    exit_with_stdin: bool = False
    spark_master: str = "local[*]"
    spark_config: dict[str, str] = Field(default_factory=dict)
    spark_slots: int | None = Field(default=None, ge=1)
    spark_clusters: dict[str, ClusterSettings] = Field(default_factory=dict)
    cluster: str = Field(default=DEFAULT_CLUSTER, description="Cluster whose jobs the worker runs.")
    function_isolation: FunctionIsolation = "sandbox"
    function_memory_bytes: int | None = Field(default=None, gt=0)
    function_processes: int = Field(default=256, ge=4)
    function_open_files: int = Field(default=1024, ge=64)
    function_cpu_seconds: int = Field(default=86_400, ge=1)
    function_call_seconds: float = Field(default=3600, gt=0)
    function_network: bool = False
    function_paths: tuple[Path, ...] = ()
    function_source_packages: bool = False
    function_command_prefix: tuple[str, ...] = ()
    auto_backfill_rows: int = Field(default=1, ge=1)
    auto_backfill_cooldown_seconds: float = Field(default=60, ge=0)
    auto_backfill_poll_seconds: float = Field(default=5, gt=0)
    auto_refresh_rows: int = Field(default=1, ge=1)
    auto_refresh_fraction: float | None = Field(default=None, ge=0)
    auto_refresh_cooldown_seconds: float = Field(default=60, ge=0)
    auto_refresh_poll_seconds: float = Field(default=5, gt=0)
    lease_seconds: float = Field(default=30, gt=0)
    heartbeat_seconds: float = Field(default=10, gt=0)
    cancel_poll_seconds: float = Field(default=1, gt=0)
    job_poll_seconds: float = Field(default=0.5, gt=0)
    log_level: str = "INFO"

    @model_validator(mode="before")
    @classmethod
    def _check_secrets(cls, raw: Any) -> Any:
        """Before secrets are hashed. Short ones do where only this machine can connect."""
        host, clients = raw.get("host", "127.0.0.1"), raw.get("clients")
        if host not in LOOPBACK and isinstance(clients, dict):
            for client_id, client in clients.items():
                secret = client.get("secret") if isinstance(client, dict) else None
                if isinstance(secret, str) and len(secret) < MIN_SECRET_LENGTH:
                    raise InvalidInput(
                        f"clients.{client_id}.secret",
                        f"must have at least {MIN_SECRET_LENGTH} characters for a server on {host}",
                    )
        return raw

    @property
    def has_authentication(self) -> bool:
        """Whether callers have to say who they are. Otherwise everybody who can connect is the owner."""
        return bool(self.clients or self.oidc_issuers)

    def access(self) -> SettingsAccess:
        """Raises InvalidInput if a grant names an invalid namespace."""
        return SettingsAccess(self.has_authentication, tuple(self.clients), tuple(self._grants()))

    def _grants(self) -> Iterator[Grant]:
        for client_id, client in self.clients.items():
            yield from _grants_to(principal_grantee(client_id), client.grants, f"clients.{client_id}")
        for index, issuer in enumerate(self.oidc_issuers):
            for role, grants in issuer.grants.items():
                yield from _grants_to(role_grantee(role), grants, f"oidc_issuers.{index}")

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root.resolve() / 'catalog.db'}"

    @property
    def warehouse_uri(self) -> str:
        """Directory of the tables: a local one, or `s3://bucket/prefix`."""
        if not self.warehouse:
            return str(self.root.resolve() / "warehouse")
        return self.warehouse.rstrip("/") if self.has_object_store else str(Path(self.warehouse).resolve())

    @property
    def has_object_store(self) -> bool:
        return (self.warehouse or "").startswith("s3://")

    @property
    def job_files(self) -> str:
        """Directory of checkpoints. It is never inside a table, where a clean-up could remove them."""
        if self.has_object_store:
            return f"{self.warehouse_uri}/{JOBS_DIRECTORY}"
        return str(self.root.resolve() / "jobs")

    @property
    def token_lifetime(self) -> timedelta:
        return timedelta(seconds=self.token_lifetime_seconds)

    def connection_bounds(self) -> ConnectionBounds:
        return ConnectionBounds(
            header_bytes=self.max_header_bytes,
            header_fields=self.max_header_fields,
            header_seconds=self.header_seconds,
            body_seconds=self.body_seconds,
            stall_seconds=self.stall_seconds,
            bytes_per_second=self.min_bytes_per_second,
            connections=self.max_connections,
            connections_per_address=self.max_connections_per_address,
            trusted_proxies=Networks(self.trusted_proxies),
        )

    def query_bounds(self) -> QueryBounds | None:
        """None: queries are evaluated in the server itself, without bounds."""
        if not self.query_processes:
            return None
        return QueryBounds(
            memory_bytes=self.query_memory_bytes,
            seconds=self.query_seconds,
            result_bytes=self.query_result_bytes,
            processes=self.query_processes,
            queue_seconds=self.query_queue_seconds,
        )

    def lease_policy(self) -> LeasePolicy:
        return LeasePolicy(
            timedelta(seconds=self.lease_seconds),
            timedelta(seconds=self.heartbeat_seconds),
            timedelta(seconds=min(self.cancel_poll_seconds, self.heartbeat_seconds)),
        )

    def clusters(self) -> Clusters:
        """All clusters by name; raises InvalidInput if the number of slots of one is unknown."""
        return Clusters(
            {name: _slots(name, configured) for name, configured in self.cluster_settings().items()}
        )

    def cluster_settings(self) -> dict[str, ClusterSettings]:
        default = ClusterSettings(master=self.spark_master, config=self.spark_config, slots=self.spark_slots)
        return {DEFAULT_CLUSTER: default, **self.spark_clusters}

    def function_host(self) -> FunctionHost:
        return FunctionHost(
            Isolation(self.function_isolation),
            str(self.root.resolve() / "environments"),
            self.function_memory_bytes,
            self.function_command_prefix,
            hidden=self._private_paths(),
            readable=tuple(str(path.resolve()) for path in self.function_paths),
            allows_network=self.function_network,
            limits=Limits(
                processes=self.function_processes,
                open_files=self.function_open_files,
                cpu_seconds=self.function_cpu_seconds,
            ),
            call_seconds=None if self.function_isolation == "none" else self.function_call_seconds,
            # A worker that no server has started cannot know whether there are clients.
            is_strict=self.has_authentication or not self.exit_with_stdin,
            allows_builds=self.function_source_packages,
        )

    def _private_paths(self) -> tuple[str, ...]:
        """Folders that functions never see, even if Python's path leads there."""
        warehouse = () if self.has_object_store else (self.warehouse_uri,)
        return (str(self.root.resolve()), *warehouse, *(str(path) for path in self.allowed_locations))

    def auto_backfill_policy(self) -> AutoBackfillPolicy:
        return AutoBackfillPolicy(
            self.auto_backfill_rows, timedelta(seconds=self.auto_backfill_cooldown_seconds)
        )

    def auto_refresh_policy(self) -> AutoRefreshPolicy:
        return AutoRefreshPolicy(
            self.auto_refresh_rows,
            self.auto_refresh_fraction,
            timedelta(seconds=self.auto_refresh_cooldown_seconds),
        )

    def spark_target(self, cluster: str = DEFAULT_CLUSTER) -> SparkTarget:
        configured = self.cluster_settings()[self.clusters().check(cluster)]
        return SparkTarget(
            configured.master, self.root.resolve() / "scratch", configured.config, configured.slots
        )


def load_settings(**overrides: Any) -> ServerSettings:
    """Loads settings. Arguments that are not None override the environment and the defaults."""
    try:
        settings = ServerSettings(**{key: value for key, value in overrides.items() if value is not None})
    except ValidationError as error:
        first_error = error.errors()[0]
        raise InvalidInput(".".join(map(str, first_error["loc"])), first_error["msg"]) from error
    if settings.heartbeat_seconds * 2 > settings.lease_seconds:
        raise InvalidInput("heartbeat_seconds", "must be at most half of lease_seconds")
    _check_warehouse(settings)
    _check_separator(settings.namespace_separator)
    _check_clusters(settings)
    for client_id in settings.clients:
        check_client_id(client_id, "clients")
    check_issuers(settings.oidc_issuers)
    settings.access()
    _check_tls(settings)
    if settings.has_authentication and settings.function_isolation == "none":
        raise InvalidInput(
            "function_isolation",
            "cannot be 'none' on a server with authentication; 'trusted' gives whoever has the permission "
            "`function` the rights of an admin, 'sandbox' does not",
        )
    if settings.has_authentication and not settings.query_processes:
        raise InvalidInput(
            "query_processes",
            "cannot be 0 on a server with authentication: one query could end the server for all",
        )
    Networks(settings.trusted_proxies)
    return settings


def _check_tls(settings: ServerSettings) -> None:
    if settings.tls_certificate is not None and settings.tls_key is None:
        raise InvalidInput("tls_key", "is required when tls_certificate is set")
    if settings.tls_key is not None and settings.tls_certificate is None:
        raise InvalidInput("tls_certificate", "is required when tls_key is set")


def _check_warehouse(settings: ServerSettings) -> None:
    if settings.has_object_store and settings.allowed_locations:
        raise InvalidInput(
            "allowed_locations", "cannot be used with an object store; its tables are all in the warehouse"
        )
    if not settings.has_object_store and "://" in (settings.warehouse or ""):
        raise InvalidInput(
            "warehouse", f"must be a directory or s3://bucket/prefix, not {settings.warehouse}"
        )
    if settings.s3_vend != "none" and not settings.has_object_store:
        raise InvalidInput(
            "s3_vend", f"is {settings.s3_vend!r}, which needs a warehouse at s3://bucket/prefix"
        )
    if settings.s3_remote_signing and not settings.has_object_store:
        raise InvalidInput("s3_remote_signing", "is on, which needs a warehouse at s3://bucket/prefix")
    if settings.s3_vend == "sts" and not settings.s3_role_arn:
        raise InvalidInput("s3_role_arn", "is required when s3_vend is 'sts'")
    is_complete = settings.s3_client_access_key_id and settings.s3_client_secret_access_key
    if settings.s3_vend == "static" and not is_complete:
        raise InvalidInput(
            "s3_client_access_key_id", "and s3_client_secret_access_key are required when s3_vend is 'static'"
        )


def _check_separator(separator: str) -> None:
    if separator != LEVEL_SEPARATOR and separator not in list(SEPARATORS):
        raise InvalidInput(
            "namespace_separator", f"{separator!r:.60} is not one of these characters: {' '.join(SEPARATORS)}"
        )


def _check_clusters(settings: ServerSettings) -> None:
    for name in settings.spark_clusters:
        if not name.strip():
            raise InvalidInput("spark_clusters", "contains a cluster without a name")
        if name == DEFAULT_CLUSTER:
            raise InvalidInput(
                "spark_clusters", f"{name!r} is reserved for the cluster of spark_master; use another name"
            )
    for name, configured in settings.cluster_settings().items():
        if not is_master(configured.master):
            raise InvalidInput(_field(name, "master"), f"{configured.master!r} is not {MASTERS}")
    settings.clusters().check(settings.cluster)


def _slots(name: str, configured: ClusterSettings) -> int:
    slots = configured.slots or slots_of(configured.master)
    if slots is None:
        problem = f"is required: {configured.master} does not say how many tasks it runs at a time"
        raise InvalidInput(_field(name, "slots"), problem)
    return slots


def _field(cluster: str, part: str) -> str:
    """The name of a setting of a cluster, for error messages."""
    return f"spark_{part}" if cluster == DEFAULT_CLUSTER else f"spark_clusters.{cluster}.{part}"
