"""A cluster behind Spark Connect: the session lives in another process, and tasks are sent as a query."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tidemill.errors import TidemillError
from tidemill.spark.cluster import PINNED, Task, import_kernels, through_arrow
from tidemill.spark.failures import is_shutdown

T = TypeVar("T")

# Gives up on a server after about ten seconds; by default Spark would wait ten minutes.
MAX_RETRIES: Final = 7
MAX_BACKOFF_MILLISECONDS: Final = 2000
# What the client raises if it cannot reach its session; ValueError means that the channel is closed.
UNREACHABLE: Final = (PySparkException, OSError, ValueError)
PROBE: Final = "spark.sql.session.timeZone"


class ConnectionLost(Exception):
    """The server is gone, or has dropped the session and its work."""


class ConnectCluster:
    def __init__(self, url: str, slots: int, config: Mapping[str, str]) -> None:
        self._url = url
        self._slots = slots
        self._config = dict(config)
        self._session = self._open()
        self._is_lost = False

    @property
    def slots(self) -> int:
        return self._slots

    def run(self, group: str, task: Task, tasks: int) -> list[bytes]:
        return self.query(group, lambda session: through_arrow(session, task, tasks))

    def query(self, group: str, work: Callable[[SparkSession], T]) -> T:
        # The server drops sessions that are unused for an hour.
        if not self.is_alive():
            self._session, self._is_lost = self._open(), False
        session = self._session
        session.addTag(group)
        try:
            return work(cast(SparkSession, session))
        except (PySparkException, TidemillError) as error:
            # A server that shuts down still responds for a moment, so a probe alone is not enough.
            self._is_lost = is_shutdown(error) or not self.is_alive()
            if self._is_lost:
                raise ConnectionLost(f"{self._url} has gone away: {error}") from error
            raise
        finally:
            session.removeTag(group)

    def cancel(self, group: str) -> None:
        with suppress(*UNREACHABLE):
            self._session.interruptTag(group)

    def is_alive(self) -> bool:
        if self._is_lost:
            return False
        try:
            self._session.conf.get(PROBE)
        except UNREACHABLE:
            return False
        return True

    def warm_up(self) -> None:
        self.run("warm-up", import_kernels, self._slots)

    def stop(self) -> None:
        self._session.stop()

    def _open(self) -> ConnectSession:
        session = ConnectSession.builder.remote(self._url).create()
        retry_policy = DefaultPolicy(max_retries=MAX_RETRIES, max_backoff=MAX_BACKOFF_MILLISECONDS)
        session.client.set_retry_policies([retry_policy])
        with warnings.catch_warnings():
            # Spark advises against a setting that is pinned because it exists.
            warnings.simplefilter("ignore", UserWarning)
            for key, value in {**self._config, **PINNED}.items():
                session.conf.set(key, value)
        return session
