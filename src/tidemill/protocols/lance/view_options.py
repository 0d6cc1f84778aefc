"""What bodies say about views in every form: kind, function, environment, and how to refresh them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tidemill.catalog.model.environments import OWN_ENVIRONMENT, Environment
from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import RefreshPolicy, ViewKind
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.service.view_definitions import ViewDefinition
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields

EnvironmentReader = Callable[[Fields], Environment]

VIEW_KINDS: Final[Mapping[str, ViewKind]] = {
    "query": ViewKind.QUERY,
    "chunker": ViewKind.CHUNKER,
    "scalar_udtf": ViewKind.CHUNKER,
    "udtf": ViewKind.UDTF,
}


def environment_reader(call: Call) -> EnvironmentReader:
    """Reads the manifest of an object, which is JSON, or the name of one that is kept."""

    def read(fields: Fields) -> Environment:
        text, name = fields.text("manifest"), fields.name_of("manifest")
        return call.operations.environments.resolve(call.caller, text, name) or OWN_ENVIRONMENT

    return read


def view_kind(fields: Fields) -> ViewKind:
    kind = fields.required_text("kind").lower()
    if kind not in VIEW_KINDS:
        raise InvalidInput("kind", f"{kind!r:.60} is none of query, chunker, udtf")
    return VIEW_KINDS[kind]


def function_spec(fields: Fields, kind: ViewKind) -> Fields | None:
    """What is said about the chunker or table function; a query view has none."""
    spec = fields.nested("udtf_spec")
    if kind is ViewKind.QUERY:
        if spec is not None:
            raise InvalidInput("udtf_spec", "must be null for a view of kind query")
        return None
    if spec is None:
        raise InvalidInput("udtf_spec", f"is missing; a view of kind {kind} needs it")
    spec_kind = spec.text("kind")
    if spec_kind is not None and VIEW_KINDS.get(spec_kind.lower()) is not kind:
        raise InvalidInput("udtf_spec.kind", f"{spec_kind!r:.60} is not the kind of the view, {kind}")
    # The sum is over the base64 text as it stands in the request.
    expected = hashlib.sha256(spec.required_text("udtf").encode()).hexdigest()
    if spec.required_text("udtf_sha").lower() != expected:
        raise InvalidInput(
            "udtf_spec.udtf_sha", "is not the SHA-256 of udtf_spec.udtf; the envelope was damaged"
        )
    return spec


def with_options(
    definition: ViewDefinition, fields: Fields, spec: Fields | None, environment_of: EnvironmentReader
) -> ViewDefinition:
    """The definition with all that does not depend on its form."""
    said = replace(
        definition,
        has_auto_refresh=fields.flag("auto_refresh") or False,
        is_populated=fields.flag("with_no_data") is False,
        policy=fields.choice("policy", RefreshPolicy.AUTO),
    )
    if spec is None:
        return replace(said, on_error=_error_policy(fields, "on_error"), environment=environment_of(fields))
    return replace(
        said,
        partition_by=spec.text("partition_by") or None,
        partition_index=spec.text("partition_by_indexed_column") or None,
        on_error=_error_policy(spec, "error_handling"),
        environment=environment_of(spec),
    )


def _error_policy(fields: Fields, key: str) -> ErrorPolicy:
    return ErrorPolicy.from_json(fields.raw(key), fields.name_of(key)) if fields.has(key) else FAIL_AT_ONCE
