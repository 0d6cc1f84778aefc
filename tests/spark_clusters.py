"""Spark clusters of the tests' own, on loopback: a standalone one of two workers, and a Connect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from tests.e2e.processes import Process, descendants
from tests.e2e.waiting import eventually

SPARK_HOME: Final = Path(pyspark.__file__).parent
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Starts in half the time: compiling its code well pays off only in processes that live on.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOOPBACK: Final = "127.0.0.1"
START_SECONDS: Final = 60.0


def spark_environment() -> dict[str, str]:
    """For every process of Spark here: nothing leaves this machine, and Python workers have our code."""
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }


@dataclass(frozen=True)
class StandaloneCluster:
    """A master and two workers of one core each."""

    url: str
    workers: tuple[subprocess.Popen[bytes], ...]

    @property
    def config(self) -> dict[str, str]:
        """What a session on it needs to be told."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
        }

    def executors(self, worker: subprocess.Popen[bytes]) -> list[Process]:
        return [process for process in descendants(worker.pid) if process.is_java]

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """As when its machine goes: the worker first, or it would start another executor."""
        executors = self.executors(worker)
        worker.kill()
        for executor in executors:
            executor.send(signal.SIGKILL)


@contextmanager
def running_standalone(folder: Path) -> Iterator[StandaloneCluster]:
    port = free_port()
    place = ("--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
    with _spark(folder, "master", MASTER, *place) as process:
        _await(port, process)
        url = f"spark://{LOOPBACK}:{port}"
        with _worker(folder, "first", url) as first, _worker(folder, "second", url) as second:
            yield StandaloneCluster(url, (first, second))


@contextmanager
def running_connect(folder: Path) -> Iterator[str]:
    """The address of a Connect server that runs two tasks at a time."""
    port = free_port()
    config = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.python.daemon.module": "tidemill.spark.daemon",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    words = [word for key, value in config.items() for word in ("--conf", f"{key}={value}")]
    command = (SUBMIT, "--class", CONNECT, "--master", "local[2]", *words, "spark-internal")
    with _spark(folder, "connect", *command) as process:
        _await(port, process)
        yield f"sc://{LOOPBACK}:{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _worker(folder: Path, name: str, master: str) -> Iterator[subprocess.Popen[bytes]]:
    place = ("--host", LOOPBACK, "--webui-port", "0", "--work-dir", str(folder / name))
    with _spark(folder, name, WORKER, *place, "--cores", "1", "--memory", "512m", master) as process:
        yield process


@contextmanager
def _spark(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Java process of Spark; its children end with it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *command],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **spark_environment()},
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    def is_open() -> bool:
        assert process.poll() is None, f"it ended: {process.args!r}"
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0

    eventually(is_open, f"something listens on {port}", START_SECONDS)
