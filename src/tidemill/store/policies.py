"""Error policies as they are kept in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy


def error_policy_of(stored: Mapping[str, Any]) -> ErrorPolicy:
    """What is not there is as by default."""
    # A newer server may have written fields that this code does not know yet.
    known = {field.name for field in fields(ErrorPolicy)}
    policy = ErrorPolicy(**{name: value for name, value in stored.items() if name in known})
    return replace(policy, action=ErrorAction(policy.action), retry_on=tuple(policy.retry_on))
