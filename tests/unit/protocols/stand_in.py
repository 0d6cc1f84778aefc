"""Stand-ins for operations: they answer some methods, and name only the arguments that they look at."""

from __future__ import annotations

import inspect
from typing import Any


def stand_in(real: type, answers: object) -> Any:
    return _StandIn(real, answers)


class _StandIn:
    """Passes calls of `real` on to `answers`, once the signatures of the real methods have accepted them."""

    def __init__(self, real: type, answers: object) -> None:
        self._real = real
        self._answers = answers
        for name, answer in inspect.getmembers(answers, inspect.ismethod):
            if hasattr(real, name) and not name.startswith("_"):
                unknown = _names(answer) - _names(getattr(real, name))
                assert not unknown, f"{real.__name__}.{name} has no parameter {unknown}"

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._answers, name)
        if not inspect.ismethod(answer):
            return answer
        signature, wanted = inspect.signature(getattr(self._real, name)), _names(answer)

        def call(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(self, *arguments, **named)
            given.apply_defaults()
            return answer(**{key: value for key, value in given.arguments.items() if key in wanted})

        return call


def _names(method: Any) -> set[str]:
    return set(inspect.signature(method).parameters)
