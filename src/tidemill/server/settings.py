"""Settings: read once, here, from defaults, the environment and the command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidemill.errors import InvalidInput
from tidemill.jobs.operations.work import LeasePolicy
from tidemill.spark.target import SparkTarget


class ServerSettings(BaseSettings):
    """Environment variables are the names in capitals after `TIDEMILL_`, e.g. TIDEMILL_SPARK_MASTER."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_", extra="forbid", frozen=True)

    root: Path = Path("tidemill-data")
    host: str = "127.0.0.1"
    port: int = Field(default=8181, ge=0, le=65535)
    database_url: str | None = None
    with_worker: bool = True
    exit_with_stdin: bool = False
    spark_master: str = "local[*]"
    spark_config: dict[str, str] = Field(default_factory=dict)
    lease_seconds: float = Field(default=30, gt=0)
    heartbeat_seconds: float = Field(default=10, gt=0)
    cancel_poll_seconds: float = Field(default=1, gt=0)
    job_poll_seconds: float = Field(default=0.5, gt=0)
    log_level: str = "INFO"

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root.resolve() / 'catalog.db'}"

    @property
    def warehouse(self) -> Path:
        return self.root.resolve() / "warehouse"

    @property
    def job_files(self) -> Path:
        """Checkpoints: beside the tables, never inside one, where a clean-up could take them."""
        return self.root.resolve() / "jobs"

    def lease_policy(self) -> LeasePolicy:
        return LeasePolicy(
            timedelta(seconds=self.lease_seconds),
            timedelta(seconds=self.heartbeat_seconds),
            timedelta(seconds=min(self.cancel_poll_seconds, self.heartbeat_seconds)),
        )

    def spark_target(self) -> SparkTarget:
        return SparkTarget(self.spark_master, self.root.resolve() / "scratch", self.spark_config)


def load_settings(**given: Any) -> ServerSettings:
    """Settings with what was given (None: not given) put over the environment and the defaults."""
    settings = ServerSettings(**{key: value for key, value in given.items() if value is not None})
    if settings.heartbeat_seconds * 2 > settings.lease_seconds:
        raise InvalidInput("heartbeat_seconds", "has to be at most half of lease_seconds")
    return settings
