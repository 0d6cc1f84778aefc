"""How random histories are drawn: quick, with failures that can be repeated, and the same ones every time."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

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


def follow_new(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    """Histories that nobody has drawn before."""
    run_state_machine_as_test(machine, settings=history_settings(examples, steps, derandomize=False))
