"""The pool of zygotes and children of this process, and its settings. Idle ones wait for the next task."""

from __future__ import annotations

import atexit
import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Final

from tidemill.functions.calling.batches import BoundFunction
from tidemill.functions.failures import HOST_FAILED, FunctionRaised, error_without_row, synthetic_error
from tidemill.functions.isolation.clients import (
    ChildClient,
    ForkedChild,
    ZygoteClient,
    ZygoteGone,
    ZygoteSpec,
)
from tidemill.functions.isolation.confinement import find_problem, hidden_paths, readable_paths
from tidemill.functions.isolation.sandbox import DEFAULT_LIMITS, Limits, Sandbox

MAX_IDLE_CHILDREN: Final = 8
MAX_ZYGOTES: Final = 4
REFUSED: Final = (
    "functions are refused, as this machine cannot isolate them: {} (see `tidemill doctor`). With "
    "TIDEMILL_FUNCTION_ISOLATION=trusted they run without isolation, and the permission `function` equals "
    "`admin`"
)


class Isolation(StrEnum):
    """TASK and PROCESS trust the function: it can do whatever the task can.

    TASK runs it in the process of the task, PROCESS in another one, so that a crash does not end the task. A
    SANDBOX is a process in namespaces of its own, without files, secrets, other processes or network.
    """

    TASK = "none"
    PROCESS = "trusted"
    SANDBOX = "sandbox"


@dataclass(frozen=True)
class FunctionHost:
    """Where functions run, and how their processes are started.

    Packages are installed below `environments_root`, one folder per set of packages. `memory_bytes` limits
    the address space of a child. `command_prefix` goes before the command of the zygote, to drop privileges.

    The rest is for sandboxes: `hidden` and `readable` paths, whether functions that ask for a network get
    one, `limits`, the longest time of a call, whether functions are refused on a machine without, and
    whether their packages may be built from source.
    """

    isolation: Isolation = Isolation.PROCESS
    environments_root: str = ""
    memory_bytes: int | None = None
    command_prefix: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    allows_network: bool = False
    limits: Limits = DEFAULT_LIMITS
    call_seconds: float | None = None
    is_strict: bool = False
    allows_builds: bool = False

    @property
    def builds_packages(self) -> bool:
        """Whether packages may be built from source, which runs their author's code as the worker."""
        return self.allows_builds or self.isolation is not Isolation.SANDBOX

    def with_processes(self) -> FunctionHost:
        """For a function that may have killed its task: in a process of its own, if it was in the task."""
        return replace(self, isolation=Isolation.PROCESS) if self.isolation is Isolation.TASK else self

    def zygote_spec(
        self,
        packages: Path | None = None,
        variables: Mapping[str, str] | None = None,
        *,
        network: bool = False,
    ) -> ZygoteSpec:
        """How the zygote of a function is started; raises FunctionRaised if it may not be."""
        named = tuple(sorted((variables or {}).items()))
        if self.isolation is not Isolation.SANDBOX or not self._has_sandboxes():
            return ZygoteSpec(self.command_prefix, packages, named)
        sandbox = Sandbox(
            readable_paths(packages, self.readable),
            hidden_paths(self.hidden),
            has_network=network and self.allows_network,
            limits=self.limits,
        )
        return ZygoteSpec(self.command_prefix, packages, named, sandbox)

    def _has_sandboxes(self) -> bool:
        problem = find_problem(self.command_prefix)
        if problem is not None and self.is_strict:
            raise error_without_row(synthetic_error(HOST_FAILED, REFUSED.format(problem)))
        return problem is None


@dataclass(frozen=True)
class ChildKey:
    """Children with equal keys are interchangeable: same environment, limits and code."""

    spec: ZygoteSpec
    memory_bytes: int | None
    code: Hashable


class Pool:
    """Lends children to tasks; ends the least recently used of those that are idle."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._zygotes: OrderedDict[ZygoteSpec, ZygoteClient] = OrderedDict()
        self._busy: dict[ChildClient, ChildKey] = {}
        self._idle: OrderedDict[ChildClient, ChildKey] = OrderedDict()

    def zygote(self, spec: ZygoteSpec) -> ZygoteClient:
        """Starts the zygote if there is none, and does not wait until it is up."""
        with self._lock:
            found = self._zygotes.get(spec) or self._zygotes.setdefault(spec, ZygoteClient(spec))
            self._zygotes.move_to_end(spec)
            self._evict_zygotes()
            return found

    def acquire(self, bound: BoundFunction, spec: ZygoteSpec, memory_bytes: int | None) -> ChildClient:
        """Returns a child that has opened the function; raises FunctionRaised if it cannot be opened."""
        key = ChildKey(spec, memory_bytes, _code_key(bound))
        child = self._find_idle(key)
        if child is None:
            child = ChildClient(*self._fork(spec, memory_bytes), bound)
        with self._lock:
            self._busy[child] = key
        return child

    def release(self, child: ChildClient) -> None:
        with self._lock:
            self._idle[child] = self._busy.pop(child)
            surplus = [self._idle.popitem(last=False)[0] for _ in range(len(self._idle) - MAX_IDLE_CHILDREN)]
        for old in surplus:
            old.end()

    def discard(self, child: ChildClient) -> None:
        """For a child that has ended, or that the caller ends."""
        with self._lock:
            self._busy.pop(child, None)

    def close(self) -> None:
        with self._lock:
            children, zygotes = [*self._idle, *self._busy], list(self._zygotes.values())
            self._idle.clear()
            self._busy.clear()
            self._zygotes.clear()
        for child in children:
            child.end()
        for zygote in zygotes:
            zygote.close()

    def _find_idle(self, key: ChildKey) -> ChildClient | None:
        with self._lock:
            found = [child for child, its_key in self._idle.items() if its_key == key]
            for child in reversed(found):
                del self._idle[child]
                if child.is_alive():
                    return child
                child.end()
        return None

    def _fork(self, spec: ZygoteSpec, memory_bytes: int | None) -> tuple[ZygoteClient, ForkedChild]:
        """Tries twice: a pooled zygote may have died since its last use, a new one should not."""
        for _ in range(2):
            zygote = self.zygote(spec)
            try:
                return zygote, zygote.fork(memory_bytes)
            except ZygoteGone:
                code = self._remove_zygote(spec, zygote)
        prefix = " ".join(spec.command_prefix)
        text = f"the process that makes others for functions ended with code {code} ({prefix or 'no prefix'})"
        raise error_without_row(synthetic_error(HOST_FAILED, text))

    def _remove_zygote(self, spec: ZygoteSpec, zygote: ZygoteClient) -> int:
        with self._lock:
            if self._zygotes.get(spec) is zygote:
                del self._zygotes[spec]
        return zygote.close()

    def _evict_zygotes(self) -> None:
        """Closes the least recently used zygotes; never one with a busy child."""
        busy = {key.spec for key in self._busy.values()}
        for spec in [spec for spec in self._zygotes if spec not in busy][:-MAX_ZYGOTES]:
            for child in [child for child, key in self._idle.items() if key.spec == spec]:
                del self._idle[child]
                child.end()
            self._zygotes.pop(spec).close()


POOL: Final = Pool()
atexit.register(POOL.close)


def warm_up(host: FunctionHost) -> None:
    """Starts a zygote, so that the first call does not wait for it."""
    with suppress(FunctionRaised):
        POOL.zygote(host.zygote_spec())


def _code_key(bound: BoundFunction) -> Hashable:
    function = bound.function
    payload = hashlib.sha256(function.payload).digest()
    output = bound.output.serialize().to_pybytes()
    return function.digest, payload, function.timeout_seconds, bound.names, output
