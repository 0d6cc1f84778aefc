"""All zygotes and children of a process; what a task is done with is kept for the next one."""

from __future__ import annotations

import atexit
import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Final

from tidemill.functions.calling.batches import Definition
from tidemill.functions.failures import HOST_FAILED, in_words, without_row
from tidemill.functions.isolation.child_client import Child
from tidemill.functions.isolation.settings import FunctionHost
from tidemill.functions.isolation.zygote_client import Forked, Setup, Zygote, ZygoteGone

MOST_IDLE: Final = 8
MOST_ZYGOTES: Final = 4


@dataclass(frozen=True)
class Kin:
    """What children have to share to stand in for each other."""

    setup: Setup
    memory_bytes: int | None
    code: Hashable


class Pool:
    """Gives children and takes them back; the least recently used are ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._zygotes: OrderedDict[Setup, Zygote] = OrderedDict()
        self._busy: dict[Child, Kin] = {}
        self._idle: OrderedDict[Child, Kin] = OrderedDict()

    def zygote(self, setup: Setup) -> Zygote:
        """Starts it, if there is none, and does not wait for it."""
        with self._lock:
            found = self._zygotes.get(setup) or self._zygotes.setdefault(setup, Zygote(setup))
            self._zygotes.move_to_end(setup)
            self._drop_zygotes()
            return found

    def take(self, definition: Definition, setup: Setup, memory_bytes: int | None) -> Child:
        """A child with the function open in it; raises FunctionRaised if it cannot be."""
        kin = Kin(setup, memory_bytes, _code(definition))
        child = self._find_idle(kin)
        if child is None:
            child = Child(*self._forked(setup, memory_bytes), definition)
        with self._lock:
            self._busy[child] = kin
        return child

    def give_back(self, child: Child) -> None:
        with self._lock:
            self._idle[child] = self._busy.pop(child)
            surplus = [self._idle.popitem(last=False)[0] for _ in range(len(self._idle) - MOST_IDLE)]
        for old in surplus:
            old.end()

    def forget(self, child: Child) -> None:
        """Of a child that has ended, or will be by who calls this."""
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

    def _find_idle(self, kin: Kin) -> Child | None:
        with self._lock:
            found = [child for child, its in self._idle.items() if its == kin]
            for child in reversed(found):
                del self._idle[child]
                if child.is_alive():
                    return child
                child.end()
        return None

    def _forked(self, setup: Setup, memory_bytes: int | None) -> tuple[Zygote, Forked]:
        """The second time from a new zygote: the first may have ended long ago, for reasons of its own."""
        for _ in range(2):
            zygote = self.zygote(setup)
            try:
                return zygote, zygote.fork(memory_bytes)
            except ZygoteGone:
                code = self._bury(setup, zygote)
        prefix = " ".join(setup.command_prefix)
        text = f"the process that makes others for functions ended with code {code} ({prefix or 'no prefix'})"
        raise without_row(in_words(HOST_FAILED, text))

    def _bury(self, setup: Setup, zygote: Zygote) -> int:
        with self._lock:
            if self._zygotes.get(setup) is zygote:
                del self._zygotes[setup]
        return zygote.close()

    def _drop_zygotes(self) -> None:
        """Only those whose children have nothing to do."""
        busy = {kin.setup for kin in self._busy.values()}
        for setup in [setup for setup in self._zygotes if setup not in busy][:-MOST_ZYGOTES]:
            for child in [child for child, kin in self._idle.items() if kin.setup == setup]:
                del self._idle[child]
                child.end()
            self._zygotes.pop(setup).close()


POOL: Final = Pool()
atexit.register(POOL.close)


def warm_up(host: FunctionHost) -> None:
    """Starts what takes long ahead of the first call."""
    POOL.zygote(Setup(host.command_prefix))


def _code(definition: Definition) -> Hashable:
    function = definition.function
    payload = hashlib.sha256(function.payload).digest()
    output = definition.output.serialize().to_pybytes()
    return function.digest, payload, function.timeout_seconds, definition.names, output
