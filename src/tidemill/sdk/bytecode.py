"""What a code object does, apart from how it was written down.

Comments and blank lines leave no trace in bytecode, but other matters of taste do: a docstring shifts the
numbers of all constants, a statement on a line of its own leaves a NOP or a jump to a jump, hints of inner
functions are evaluated, and the body of a class stores its docstring, its qualified name and its line.
`steps_of` undoes that: it follows the code from its entry, resolves what instructions refer to, and leaves
out what only says how the code was written. Equal steps mean equal behaviour.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dis import Instruction
from functools import lru_cache
from types import CodeType
from typing import Any, Final

# `FORWARD` and `BACKWARD` say where the target was put.
DIRECTION: Final = re.compile("_(FORWARD|BACKWARD)(?=_IF)")
# `and` and `or` keep the value that they tested if it decides.
KEEPING_TEST: Final = re.compile("JUMP_IF_(?P<truth>TRUE|FALSE)_OR_POP")
TEST: Final = re.compile("(?:POP_)?JUMP_IF_(?P<truth>TRUE|FALSE)(?P<kept>_OR_POP)?")
# Two steps in one, made only where both are on the same line.
PAIR: Final = re.compile("((?:LOAD|STORE)_FAST(?:_BORROW)?)_((?:LOAD|STORE)_FAST(?:_BORROW)?)")
JUMPS: Final = frozenset(
    {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT"}
)
ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
SILENT: Final = frozenset({"NOP", "NOT_TAKEN", "EXTENDED_ARG", "CACHE"})
NAMED: Final = frozenset(dis.hasname) | frozenset(dis.haslocal) | frozenset(dis.hasfree)
DOC: Final = "__doc__"
# What the body of a class stores about the place it was written at.
PLACES: Final = frozenset({"__qualname__", "__firstlineno__", "__static_attributes__"})
# Flags of a new function: annotations, and since Python 3.14 the function that makes them.
HINTS: Final = frozenset({4, 16})
CLOSURE: Final = 8
SOURCE_READERS: Final = frozenset({"getsource", "getsourcelines", "getcomments"})
DOC_READERS: Final = frozenset({DOC, "getdoc"}) | SOURCE_READERS


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction; `following`, `target` and `handler` are numbers of steps that may come after it."""

    operation: str
    argument: str
    constant: Any = None
    name: str | None = None
    following: int | None = None
    target: int | None = None
    handler: tuple[int, int, bool] | None = None

    @property
    def edges(self) -> str:
        return f"{self.following} {self.target} {self.handler}"


@lru_cache(maxsize=4096)
def steps_of(code: CodeType, *, with_docs: bool = False) -> tuple[Step, ...]:
    """The steps that can be reached, in the order in which they are found."""
    return _Listing(code, with_docs=with_docs).steps()


def names_read(code: CodeType) -> frozenset[str]:
    """Names and texts that the code and its inner functions refer to, apart from those in hints."""
    found: set[str] = set()
    for step in steps_of(code):
        if isinstance(step.constant, CodeType):
            found |= names_read(step.constant)
        elif isinstance(step.constant, str):
            found.add(step.constant)
        elif step.name is not None and not step.operation.startswith("STORE"):
            found.add(step.name)
    return frozenset(found)


def globals_read(code: CodeType) -> frozenset[str]:
    found: set[str] = set()
    for step in steps_of(code):
        if isinstance(step.constant, CodeType):
            found |= globals_read(step.constant)
        elif step.name is not None and step.operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.add(step.name)
    return frozenset(found)


class _Listing:
    def __init__(self, code: CodeType, *, with_docs: bool) -> None:
        heard = (step for step in dis.get_instructions(code) if step.opname not in SILENT)
        self._listed = [part for step in heard for part in _parted(step)]
        self._places = _places(code, self._listed)
        self._handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # not in typeshed
        hints = _hint_places(self._listed)
        self._hinted = {place for place in hints if self._listed[place].opname == "MAKE_FUNCTION"}
        self._silent = hints - self._hinted | _class_places(self._listed, with_docs=with_docs)

    def steps(self) -> tuple[Step, ...]:
        """Follows every way from the entry; what cannot be reached does not matter."""
        order: dict[int, int] = {}
        waiting = [self._resolved(0)]
        while waiting:
            place = waiting.pop()
            if place not in order:
                order[place] = len(order)
                waiting += [after for after in reversed(self._after(place)) if after is not None]
        return tuple(self._made(place, order) for place in order)

    def _after(self, place: int) -> tuple[int | None, int | None, int | None]:
        """The steps that may come next: the following one, the target of a jump, the handler of an error."""
        step = self._listed[place]
        following = None if step.opname in ENDS else self._resolved(place + 1)
        handler = self._handler(step)
        caught = None if handler is None else self._resolved(self._places[handler.target])
        return following, self._jump(place)[1], caught

    def _jump(self, place: int) -> tuple[str, int | None]:
        """The operation and its target; a test that leads to one whose outcome is known leads on."""
        step = self._listed[place]
        operation = DIRECTION.sub("", step.opname)
        if not _is_jump(step):
            return operation, None
        target, kept = self._resolved(self._places[step.argval]), KEEPING_TEST.fullmatch(operation)
        while kept is not None:
            test = TEST.fullmatch(DIRECTION.sub("", self._listed[target].opname))
            if test is None:
                break
            is_same = test["truth"] == kept["truth"]
            if test["kept"] is None or not is_same:
                operation, kept = f"POP_JUMP_IF_{kept['truth']}", None
            target = self._resolved(self._places[self._listed[target].argval] if is_same else target + 1)
        return operation, target

    def _handler(self, step: Instruction) -> Any:
        # The innermost range comes first.
        return next((one for one in self._handlers if one.start <= step.offset < one.end), None)

    def _resolved(self, place: int) -> int:
        """The step that is done at a place, behind what does nothing and jumps that lead on."""
        seen: set[int] = set()
        while place not in seen:
            seen.add(place)
            step = self._listed[place]
            if place in self._silent:
                place += 1
            elif step.opname in JUMPS:
                place = self._places[step.argval]
        return place

    def _made(self, place: int, order: Mapping[int, int]) -> Step:
        listed = self._listed[place]
        following, target, handler = (None if one is None else order[one] for one in self._after(place))
        entry = self._handler(listed)
        step = replace(
            _step(listed, self._jump(place)[0]),
            following=following,
            target=target,
            handler=None if handler is None else (handler, entry.depth, entry.lasti),
        )
        if place in self._hinted:
            return replace(step, argument=str((listed.arg or 0) & ~sum(HINTS)))
        return step


def _parted(step: Instruction) -> list[Instruction]:
    """The two steps of a pair."""
    pair = PAIR.fullmatch(step.opname)
    if pair is None or not isinstance(step.argval, tuple):
        return [step]
    return [
        step._replace(opname=operation, opcode=dis.opmap[operation], argval=name, argrepr=name)
        for operation, name in zip(pair.groups(), step.argval, strict=True)
    ]


def _is_jump(listed: Instruction) -> bool:
    return listed.opcode in dis.hasjrel or listed.opcode in dis.hasjabs


def _step(listed: Instruction, operation: str) -> Step:
    if listed.opcode in dis.hasconst:
        return Step(operation, "constant", constant=listed.argval)
    if _is_jump(listed):
        return Step(operation, "")
    if listed.opcode in NAMED:
        return Step(operation, listed.argrepr, name=str(listed.argval))
    return Step(operation, listed.argrepr if listed.opcode in dis.hascompare else str(listed.arg))


def _places(code: CodeType, listed: Sequence[Instruction]) -> Mapping[int, int]:
    """The first listed step at or after each offset, because a jump may lead to one that was left out."""
    found: dict[int, int] = {}
    place = len(listed)
    for offset in range(len(code.co_code), -1, -2):
        while place and listed[place - 1].offset >= offset:
            place -= 1
        found[offset] = place
    return found


def _class_places(listed: Sequence[Instruction], *, with_docs: bool) -> set[int]:
    """Where the body of a class stores its docstring, or where it was written."""
    names = PLACES if with_docs else PLACES | {DOC}
    return {
        number
        for place, step in enumerate(listed)
        if step.opname == "STORE_NAME" and step.argval in names and place
        if listed[place - 1].opcode in dis.hasconst
        for number in (place - 1, place)
    }


def _hint_places(listed: Sequence[Instruction]) -> set[int]:
    """Where hints of inner functions and of attributes of classes are evaluated and handed over."""
    found: set[int] = set()
    for place, step in enumerate(listed):
        if step.opname == "MAKE_FUNCTION" and (step.arg or 0) & 4:
            found |= {place, *_hints_before(listed, place, has_closure=bool((step.arg or 0) & CLOSURE))}
        elif step.opname == "SET_FUNCTION_ATTRIBUTE" and step.arg in HINTS:
            found |= {place, *_handed_over(listed, place)}
        elif step.opname == "STORE_SUBSCR" and place > 2 and listed[place - 2].argval == "__annotations__":
            found |= set(_expression(listed, place - 3))
    return found


def _handed_over(listed: Sequence[Instruction], place: int) -> range:
    """Since Python 3.13 a function is made first, and gets its attributes after."""
    made = place
    while listed[made].opname == "SET_FUNCTION_ATTRIBUTE":
        made -= 1
    has_closure = any(step.arg == CLOSURE for step in listed[made + 1 : place])
    return _hints_before(listed, made, has_closure=has_closure)


def _hints_before(listed: Sequence[Instruction], made: int, *, has_closure: bool) -> range:
    """The expression of the hints, which comes before the closure and the code of the function."""
    last = made - 2
    if has_closure:
        last = _expression(listed, last).start - 1
    return _expression(listed, last)


def _expression(listed: Sequence[Instruction], last: int) -> range:
    """The shortest run of steps up to that one that leaves one value."""
    height, place = 0, last
    while place >= 0:
        step = listed[place]
        height += dis.stack_effect(step.opcode, step.arg, jump=False)
        if height == 1:
            return range(place, last + 1)
        place -= 1
    return range(last + 1, last + 1)
