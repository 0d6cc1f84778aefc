"""How random histories are drawn: the same for all of them, quick and with failures that can be repeated."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings

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
        # Shares of a machine have to differ, also where a profile for CI would give each the same.
        "derandomize": False,
    }
    return settings(**{**given, **more})
