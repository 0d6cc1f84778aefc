"""One child that calls a function, seen from the task: what it is asked, and what became of it."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from dataclasses import asdict
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from tidemill.functions.calling.batches import Definition, Part, Rows
from tidemill.functions.calling.limits import Mark
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.failures import CRASHED, TIMED_OUT, FunctionRaised, Raised, in_words, without_row
from tidemill.functions.isolation.protocol import Kind, Message, read_failure, read_part
from tidemill.functions.isolation.zygote_client import Forked, Zygote

# A child interrupts a call by itself when its time is up; one that cannot is killed this much later.
GRACE_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.05
# One that has closed its end of the channel is about to die, and how is worth knowing.
DEATH_SECONDS: Final = 1.0
READ_ERRORS: Final = (OSError, ValueError, RuntimeError)
# A child that is gone, or that has been made to send what no child of ours would.
LOST: Final = (EOFError, OSError, pa.ArrowException, ValueError, KeyError, TypeError)


class ChildLost(Exception):
    """A child ended, or had to be ended, in the middle of its work; `at` is what it was at."""

    def __init__(self, raised: Raised, at: Mark) -> None:
        super().__init__(raised.message)
        self.raised = raised
        self.at = at


class Child:
    """A process with one function open in it."""

    def __init__(self, zygote: Zygote, forked: Forked, definition: Definition) -> None:
        self._zygote = zygote
        self._forked = forked
        self._channel = forked.channel
        self._seconds = definition.function.timeout_seconds
        self.is_idle = False
        self._open(definition)

    def is_alive(self) -> bool:
        """Nothing is to be read from an idle child, except that it is gone."""
        return not self._channel.has_message(0)

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        """Raises ChildLost, after which the child is gone."""
        self.is_idle = False
        notes = {"blobs": list(rows.blobs), "attempt": asdict(attempt)}
        try:
            self._channel.send_batch(Kind.SWEEP, notes, _sent(rows))
            yield from self._parts(rows)
        except LOST as error:
            raise self._lost() from error
        self.is_idle = True

    def end(self) -> None:
        self._channel.close()
        self._zygote.end(self._forked.pid, 0)

    def _open(self, definition: Definition) -> None:
        try:
            self._channel.send(Kind.OPEN, body=pickle.dumps(definition))
            answer = self._channel.receive()
        except LOST as error:
            raised = self._lost().raised
            name = definition.function.name
            raise without_row(
                Raised(CRASHED, f"{name} cannot be opened: {raised.message}", "", raised.names)
            ) from error
        if answer.kind is Kind.FAILED:
            self.end()
            raise FunctionRaised(read_failure(answer))
        self.is_idle = True

    def _parts(self, rows: Rows) -> Iterator[Part]:
        while True:
            message = self._next_message()
            match message.kind:
                case Kind.PART:
                    yield read_part(message)
                case Kind.READ:
                    self._answer(rows, message)
                case Kind.FAILED:
                    self.is_idle = True
                    raise FunctionRaised(read_failure(message))
                case _:
                    return

    def _next_message(self) -> Message:
        if self._seconds is not None:
            self._watch(self._seconds + GRACE_SECONDS)
        return self._channel.receive()

    def _watch(self, seconds: float) -> None:
        seen, since = self._forked.marks.read(), monotonic()
        while not self._channel.has_message(WATCH_SECONDS):
            mark = self._forked.marks.read()
            if mark != seen or not mark.rows:
                seen, since = mark, monotonic()
            elif monotonic() - since > seconds:
                self.end()
                text = f"the call took longer than {self._seconds:g} s and could not be interrupted"
                raise ChildLost(in_words(TIMED_OUT, text), mark)

    def _answer(self, rows: Rows, message: Message) -> None:
        notes, body = _read(rows, message.notes["column"], message.notes["row"], message.notes)
        self._channel.send(Kind.BYTES, notes, body)

    def _lost(self) -> ChildLost:
        self._channel.close()
        code = self._zygote.end(self._forked.pid, DEATH_SECONDS)
        return ChildLost(in_words(CRASHED, _cause(code)), self._forked.marks.read())


def _sent(rows: Rows) -> pa.RecordBatch:
    """Of a blob goes only whether there is one; the row ids come last."""
    columns = [
        pa.array([source is not None for source in rows.blobs[number]]) if number in rows.blobs else column
        for number, column in enumerate(rows.inputs.columns)
    ]
    return pa.record_batch([*columns, pa.array(rows.row_ids)], names=[*rows.inputs.schema.names, "row_id"])


def _read(rows: Rows, column: int, row: int, wanted: Any) -> tuple[dict[str, Any], bytes]:
    source = rows.blobs[column][row]
    try:
        if source is None:
            return {"error": "there is no blob"}, b""
        if wanted["offset"] is None:
            return {"size": source.size()}, b""
        return {}, source.read_at(wanted["offset"], wanted["length"])
    except READ_ERRORS as error:
        return {"error": f"{type(error).__qualname__}: {error}"}, b""


def _cause(code: int | None) -> str:
    if code is None:
        return "the process it ran in is gone"
    if code >= 0:
        return f"the process it ran in ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    hint = ", as it does when memory runs out" if -code == signal.SIGKILL else ""
    return f"the process it ran in was ended by signal {name}{hint}"
