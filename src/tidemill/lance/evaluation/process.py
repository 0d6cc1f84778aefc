"""The programs of the other side: the zygote, and the query processes that it forks.

The zygote imports Lance and everything that work needs, and never uses it: Lance starts threads with its
first dataset, and a process with threads must not be forked. The address space of a query process may grow by
`memory_bytes`: an allocation beyond that fails, which Lance answers by aborting. The process handles one
request at a time and ends when the server closes the channel.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import resource
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import lance

from tidemill.functions.isolation.child_main import end_with_parent, run_zygote
from tidemill.lance.datasets import TableNamespace
from tidemill.lance.evaluation.messages import (
    Ask,
    Channel,
    Message,
    OutOfMemory,
    Raised,
    Read,
    Returned,
    Write,
)
from tidemill.lance.evaluation.tables import Tables
from tidemill.lance.model.queries import QueryResult

RUST_PANIC: Final = "PanicException"
# Raised by DataFusion when its own pool, for sorting and joining, is exhausted.
POOL_EXHAUSTED: Final = "Resources exhausted"
MEMORY_FILE: Final = "/proc/self/statm"
PAGE_BYTES: Final = resource.getpagesize()
# Shares of the memory that caches may fill, and that a process may keep from one request to the next.
INDEX_CACHE_SHARE: Final = 8
METADATA_CACHE_SHARE: Final = 16
KEPT_SHARE: Final = 4
SENT_WITHIN: Final = 1 << 15


class RemoteNamespace(TableNamespace):
    """Asks the server for versions, and to commit them."""

    def __init__(self, table: Any, channel: Channel) -> None:
        super().__init__(table)
        self._channel = channel

    def list_table_versions(self, request: Any) -> Any:
        return self._ask("list_table_versions", request)

    def describe_table_version(self, request: Any) -> Any:
        return self._ask("describe_table_version", request)

    def create_table_version(self, request: Any) -> Any:
        return self._ask("create_table_version", request)

    def _ask(self, method: str, request: Any) -> Any:
        fields = request if isinstance(request, Mapping) else request.model_dump()
        self._channel.send(Ask(method, dict(fields)))
        answer = self._channel.receive()
        if isinstance(answer, Raised):
            raise answer.error()
        assert isinstance(answer, Returned)
        return answer.value


class QueryProcess:
    """Handles requests one after another."""

    def __init__(self, channel: Channel, memory_bytes: int, result_bytes: int) -> None:
        self._channel = channel
        session: Any = lance.Session(  # type: ignore[attr-defined]  # missing in pylance's stubs
            index_cache_size_bytes=memory_bytes // INDEX_CACHE_SHARE,
            metadata_cache_size_bytes=memory_bytes // METADATA_CACHE_SHARE,
        )
        self._tables = Tables(session, result_bytes)
        self._kept_bytes = _memory()[1] + memory_bytes // KEPT_SHARE

    def run(self) -> None:
        is_spent = False
        while not is_spent:
            try:
                message = self._channel.receive()
            except (EOFError, OSError):
                return
            is_spent = self._answer(message)

    def _answer(self, message: Message) -> bool:
        """Returns whether the process has to end."""
        try:
            value = self._run(message)
        except MemoryError:
            self._channel.send(OutOfMemory())
            return True
        except BaseException as error:  # noqa: BLE001  # the server raises it again
            return self._send_error(error)
        is_spent = _memory()[1] > self._kept_bytes
        if not isinstance(value, QueryResult):
            self._channel.send(Returned(value, is_spent=is_spent))
            return is_spent
        self._send_rows(value, is_spent=is_spent)
        return is_spent

    def _send_rows(self, result: QueryResult, *, is_spent: bool) -> None:
        content = result.content
        if isinstance(content, bytes | memoryview):
            # A large one goes beside the pickle, which would copy it twice.
            sent: Any = bytes(content) if len(content) <= SENT_WITHIN else pickle.PickleBuffer(content)
            self._channel.send(Returned(replace(result, content=sent), is_spent=is_spent))
            return
        with content:
            self._channel.send(Returned(replace(result, content=b""), has_file=True, is_spent=is_spent))
            self._channel.send_file(content)

    def _run(self, message: Message) -> Any:
        match message:
            case Read():
                return message.work(self._tables, *message.arguments, **message.options)
            case Write():
                namespace = RemoteNamespace(message.table, self._channel)
                return message.work(namespace, *message.arguments, **message.options)
            case _:
                raise TypeError(f"{message} is not a request")

    def _send_error(self, error: BaseException) -> bool:
        if POOL_EXHAUSTED in str(error):
            self._channel.send(OutOfMemory())
            return True
        if type(error).__name__ == RUST_PANIC:
            # Its locks are poisoned, and its class exists only here.
            text = str(error).splitlines()[0][:300] if str(error) else "no reason"
            self._channel.send(Raised.of(ValueError(f"the evaluation panicked: {text}")))
            return True
        is_spent = _memory()[1] > self._kept_bytes
        self._channel.send(replace(Raised.of(error), is_spent=is_spent))
        return is_spent


def _memory() -> tuple[int, int]:
    """The size of the address space and the resident memory; zeros where the system does not tell."""
    try:
        descriptor = os.open(MEMORY_FILE, os.O_RDONLY)
    except OSError:
        return 0, 0
    size, resident, *_ = os.read(descriptor, 200).split()
    os.close(descriptor)
    return int(size) * PAGE_BYTES, int(resident) * PAGE_BYTES


def _bound_memory(memory_bytes: int) -> None:
    size, _ = _memory()
    if size:
        resource.setrlimit(resource.RLIMIT_AS, (size + memory_bytes, size + memory_bytes))


def run_child(result_bytes: int, zygote_pid: int, memory_bytes: int, fds: Sequence[int]) -> None:
    """Runs in the new process and never returns: nothing of the zygote's stack may run in a child."""
    try:
        channel, log = fds
        end_with_parent(zygote_pid)
        os.dup2(log, 2)
        os.setsid()
        _bound_memory(memory_bytes)
        QueryProcess(Channel(socket.socket(fileno=channel)), memory_bytes, result_bytes).run()
        os._exit(0)
    except BaseException:  # noqa: BLE001  # nothing above it may run in a fork
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    modules, result_bytes = json.loads(sys.argv[2]), int(sys.argv[3])
    for module in modules:
        importlib.import_module(module)
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    run_zygote(partial(run_child, result_bytes))
