"""The checker of histories accepts what a register can do and rejects what it cannot."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.linearizability import Get, Operation, Put, Result, find_order, find_violations

DONE, REFUSED, UNKNOWN = Result.DONE, Result.REFUSED, Result.UNKNOWN
RANDOM_HISTORIES = 2000


@pytest.mark.parametrize(
    "history",
    [
        [],
        [Get(0, 1, None), Put(2, 3, "a", DONE), Get(4, 5, "a")],
        [Put(0, 9, "a", DONE), Get(1, 2, None), Get(3, 4, "a"), Get(5, 6, "a")],
        [Put(0, 9, "a", DONE), Put(1, 8, "b", REFUSED), Get(2, 3, "a")],
        [Put(0, 9, "b", REFUSED), Put(5, 6, "a", DONE)],
        [Put(0, 1, "a", UNKNOWN), Get(2, 3, None), Get(4, 5, None)],
        [Put(0, 1, "a", UNKNOWN), Get(2, 3, None), Get(4, 5, "a")],
        [Put(0, 1, "a", UNKNOWN), Put(2, 3, "b", REFUSED), Get(4, 5, "a")],
        [Put(0, 1, "a", UNKNOWN), Put(2, 3, "b", DONE), Get(4, 5, "b")],
        [Put(0, 1, "a", UNKNOWN), Put(0, 1, "b", UNKNOWN), Get(2, 3, "b")],
    ],
    ids=lambda history: f"{len(history)} operations",
)
def test_what_a_register_can_do_is_accepted(history: list[Operation]) -> None:
    assert find_order(history) is not None


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Put(0, 1, "a", DONE), Get(2, 3, None)], id="acknowledged and not there"),
        pytest.param([Put(0, 1, "a", DONE), Get(2, 3, "b")], id="a value that nobody put"),
        pytest.param([Put(0, 9, "a", DONE), Put(0, 9, "b", DONE)], id="two winners"),
        pytest.param(
            [Put(0, 1, "a", DONE), Put(0, 9, "b", UNKNOWN), Get(2, 3, "b")], id="acknowledged and overwritten"
        ),
        pytest.param([Put(0, 9, "a", REFUSED), Get(10, 11, None)], id="refused by an empty register"),
        pytest.param([Put(0, 1, "a", REFUSED), Put(2, 3, "b", DONE)], id="refused before there was a winner"),
        pytest.param([Put(0, 9, "a", REFUSED), Get(1, 2, "a")], id="refused and there"),
        pytest.param(
            [Put(0, 9, "a", DONE), Get(1, 2, "a"), Get(3, 4, None)],
            id="seen and gone again, put still running",
        ),
        pytest.param(
            [Put(0, 9, "a", UNKNOWN), Put(0, 9, "b", UNKNOWN), Get(1, 2, "a"), Get(3, 4, "b")],
            id="changed from one unknown value to another",
        ),
        pytest.param([Put(5, 6, "a", UNKNOWN), Get(0, 1, "a")], id="seen before it was put"),
    ],
)
def test_what_no_register_can_do_is_rejected(history: list[Operation]) -> None:
    assert find_order(history) is None


def test_a_register_may_start_with_a_value() -> None:
    history: list[Operation] = [Get(0, 1, "first"), Put(2, 3, "a", REFUSED)]
    assert find_violations({"v1": history, "v2": history}, {"v1": "first"}) == ["v2"]


def test_many_overlapping_operations_are_checked_in_time() -> None:
    """Without taking harmless operations at once, this would try every subset of forty."""
    refused = [Put(0, 100, f"loser {number}", REFUSED) for number in range(20)]
    unknown = [Put(0, 100, f"unknown {number}", UNKNOWN) for number in range(20)]
    assert find_order([*refused, *unknown, Get(101, 102, "unknown 7")]) is not None
    assert find_order([*refused, *unknown, Get(101, 102, "nobody's")]) is None


def test_histories_of_a_real_register_are_accepted() -> None:
    chance = random.Random(1)
    for _ in range(RANDOM_HISTORIES):
        history = _lived(chance)
        assert find_order(history) is not None, history


def test_the_search_agrees_with_trying_every_order() -> None:
    chance = random.Random(2)
    verdicts = set()
    for _ in range(RANDOM_HISTORIES):
        history = _spoilt(chance, _lived(chance, longest=5))
        verdict = find_order(history) is not None
        assert verdict == _is_explained_by_any_order(history), history
        verdicts.add(verdict)
    assert verdicts == {True, False}


def _lived(chance: random.Random, longest: int = 8) -> list[Operation]:
    """Operations on a register that takes them one by one, each within its own interval."""
    state: str | None = None
    history: list[Operation] = []
    for instant in range(chance.randint(1, longest)):
        invoked, returned = instant - chance.uniform(0, 3), instant + chance.uniform(0, 3)
        if chance.random() < 0.4:
            history.append(Get(invoked, returned, state))
            continue
        value, result = f"v{instant}", Result.DONE if state is None else Result.REFUSED
        is_lost = chance.random() < 0.3
        if state is None and not (is_lost and chance.random() < 0.5):
            state = value
        history.append(Put(invoked, returned, value, Result.UNKNOWN if is_lost else result))
    return history


def _spoilt(chance: random.Random, history: list[Operation]) -> list[Operation]:
    """The history with one answer changed, which may or may not make it impossible."""
    index = chance.randrange(len(history))
    match history[index]:
        case Get(invoked, returned, _):
            changed: Operation = Get(invoked, returned, chance.choice([None, "v0", "v1", "v2"]))
        case Put(invoked, returned, value, _):
            changed = Put(invoked, returned, value, chance.choice(list(Result)))
    return [*history[:index], changed, *history[index + 1 :]]


def _is_explained_by_any_order(history: list[Operation]) -> bool:
    optional = [operation for operation in history if operation.is_optional]
    required = [operation for operation in history if not operation.is_optional]
    return any(
        _is_valid(order)
        for count in range(len(optional) + 1)
        for landed in itertools.combinations(optional, count)
        for order in itertools.permutations([*required, *landed])
    )


def _is_valid(order: tuple[Operation, ...]) -> bool:
    for first, second in itertools.combinations(order, 2):
        if second.deadline < first.invoked:
            return False
    state: str | None = None
    for operation in order:
        match operation:
            case Get(value=value):
                is_legal = value == state
            case Put(value=value, result=Result.REFUSED):
                is_legal = state not in (None, value)
            case Put(value=value):
                is_legal, state = state is None, value
        if not is_legal:
            return False
    return True
