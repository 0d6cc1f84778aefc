"""How random histories are drawn: quick, with failures that can be repeated, and the same ones every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

# Explaining traces every line, which makes a history several times slower.
PHASES: Final = tuple(phase for phase in Phase if phase is not Phase.explain)


def history_settings(examples: int, steps: int, **more: Any) -> settings:
    given: dict[str, Any] = {
        "max_examples": examples,
        "stateful_step_count": steps,
        "phases": PHASES,
        "deadline": None,
        "suppress_health_check": list(HealthCheck),
        "print_blob": True,
        "derandomize": True,
    }
    return settings(**{**given, **more})


def follow_share(machine: type[RuleBasedStateMachine], share: int, examples: int, steps: int) -> None:
    """Histories of the machine's that no other share has."""
    numbered = seed(share)(type(machine.__name__, (machine,), {}))
    run_state_machine_as_test(numbered, settings=history_settings(examples, steps))


@dataclass
class Followed:
    """How many histories, and steps in them, were begun."""

    histories: int = 0
    steps: int = 0


def follow_new(machine: type[RuleBasedStateMachine], number: int, examples: int, steps: int) -> Followed:
    """Histories that are drawn by this number; longer ones than those that are followed each time."""
    followed = Followed()

    class Counted(machine):  # type: ignore[misc, valid-type]  # the type is known when it runs
        _is_counted = False

        @invariant()
        def count_step(self) -> None:
            followed.steps += 1
            followed.histories += not self._is_counted
            self._is_counted = True

    chosen = history_settings(examples, steps, database=None)
    Counted.__name__ = machine.__name__
    run_state_machine_as_test(seed(number)(Counted), settings=chosen)
    return followed
