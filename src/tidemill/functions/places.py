"""Where a function is called, as its host and its environment ask for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tidemill.catalog.model.environments import Environment
from tidemill.catalog.model.functions import FunctionEncoding
from tidemill.functions.calling.batches import Definition, NoValues, Rows
from tidemill.functions.calling.in_process import InsideSweeper
from tidemill.functions.calling.retries import Rounds, Runner
from tidemill.functions.environments import missing_packages, site_packages
from tidemill.functions.isolation.settings import FunctionHost, Isolation
from tidemill.functions.isolation.supervision import ChildSweeper
from tidemill.functions.isolation.zygote_client import Setup
from tidemill.jobs.model.failures import ErrorPolicy


@dataclass(frozen=True)
class CallSettings:
    """How a function is called: where, with which packages, how often, and from how many places at once."""

    host: FunctionHost
    on_error: ErrorPolicy = field(default_factory=ErrorPolicy)
    threads: int = 1
    environment: Environment = field(default_factory=Environment)


class Place:
    """One or several processes that have a function open; they are made when rows come."""

    def __init__(
        self,
        definition: Definition,
        settings: CallSettings,
        no_values: NoValues,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._definition = definition
        self._settings = settings
        self._no_values = no_values
        self._sleep = sleep
        self._runner: Runner | None = None
        self._open = ExitStack()

    def run(self, rows: Rows) -> Rounds:
        if self._runner is None:
            self._runner = self._made()
        return self._runner.run(rows)

    def close(self) -> None:
        self._open.close()
        self._runner = None

    def _made(self) -> Runner:
        sweepers = [self._sweeper() for _ in range(max(self._settings.threads, 1))]
        runner = Runner(sweepers, self._settings.on_error, self._sleep)
        for sweeper in sweepers:
            self._open.callback(sweeper.close)
        self._open.callback(runner.close)
        return runner

    def _sweeper(self) -> ChildSweeper | InsideSweeper:
        host, environment = self._settings.host, self._environment()
        is_expression = self._definition.function.encoding is FunctionEncoding.SQL
        if is_expression or (host.isolation is Isolation.TASK and environment.is_empty):
            return InsideSweeper(self._definition)
        packages = site_packages(environment, host.environments_root)
        setup = Setup(host.command_prefix, packages, tuple(sorted(environment.variables.items())))
        return ChildSweeper(self._definition, setup, host.memory_bytes, self._no_values)

    def _environment(self) -> Environment:
        """What the job asks for goes before what the function asked for itself."""
        environment = self._settings.environment
        if environment.packages:
            return environment
        return replace(environment, packages=missing_packages(self._definition.function.requirements))
