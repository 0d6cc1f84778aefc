"""What callers can do with environments: keep them under names, and say which one a job runs in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from packaging.requirements import InvalidRequirement, Requirement

from tidemill.catalog.auditing import note_named
from tidemill.catalog.model.audit import ObjectKind
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.identifiers import NamespacePath, check_name
from tidemill.catalog.ports import Authorizer, Cipher
from tidemill.catalog.sealed_variables import sealed_variables
from tidemill.errors import ErrorCode, InvalidInput, TidemillError
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest
from tidemill.jobs.ports import JobStore

INLINE_START: Final = "{"
VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_PACKAGES: Final = 1000
MAX_VARIABLES: Final = 1000
# What else Geneva's client writes: these change nothing in what a function finds.
HARMLESS_KEYS: Final = frozenset(
    {"name", "version", "checksum", "head_image", "worker_image", "skip_site_packages"}
)
# These would change it, and are refused unless they ask for nothing.
UNSERVED_KEYS: Final = (
    "conda",
    "conda_environment_path",
    "pip_extra_index_urls",
    "py_modules",
    "requirements_path",
    "zips",
)
KNOWN_KEYS: Final = HARMLESS_KEYS.union(UNSERVED_KEYS, {"pip", "env_vars"})
ROOT: Final = NamespacePath()

RequestT = TypeVar("RequestT", BackfillRequest, PreviewRequest, RefreshRequest)


class EnvironmentNotFound(TidemillError):
    code = ErrorCode.MANIFEST_NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no manifest {name!r:.60}")


class EnvironmentOperations:
    def __init__(self, store: JobStore, authorizer: Authorizer, cipher: Cipher) -> None:
        self._store = store
        self._authorizer = authorizer
        self._cipher = cipher

    def put(self, caller: Caller, name: str, environment: Environment) -> None:
        """Gives the name this environment, whatever it had; jobs that were submitted keep theirs."""
        self._authorizer.require(caller, Permission.FUNCTION, ROOT)
        check_name(name, "name")
        if name.lstrip().startswith(INLINE_START):
            raise InvalidInput("name", "begins like JSON; a job could not ask for it by that name")
        sealed = sealed_variables(environment, self._cipher)
        note_named(ObjectKind.MANIFEST, name)
        with self._store.transaction() as tx:
            tx.environments.put(name, sealed)

    def get(self, caller: Caller, name: str) -> Environment:
        """Raises EnvironmentNotFound."""
        self._authorizer.require(caller, Permission.READ, ROOT)
        with self._store.reading() as tx:
            found = tx.environments.find(name)
        if found is None:
            raise EnvironmentNotFound(name)
        return found

    def list_all(self, caller: Caller) -> Sequence[tuple[str, Environment]]:
        """By name."""
        self._authorizer.require(caller, Permission.READ, ROOT)
        with self._store.reading() as tx:
            return tx.environments.list_all()

    def remove(self, caller: Caller, name: str) -> None:
        """Raises EnvironmentNotFound."""
        self._authorizer.require(caller, Permission.FUNCTION, ROOT)
        note_named(ObjectKind.MANIFEST, name)
        with self._store.transaction() as tx:
            if not tx.environments.remove(name):
                raise EnvironmentNotFound(name)

    def resolve(self, caller: Caller, manifest: str | None, field: str = "manifest") -> Environment | None:
        """What a job asks for: the JSON of an environment, or the name of one that is kept; sealed."""
        if not manifest or not manifest.strip():
            return None
        if not manifest.lstrip().startswith(INLINE_START):
            return self._named(caller, manifest, field)
        environment = inline_environment(manifest, field)
        if not environment.is_empty:
            # Packages and variables decide which code runs, just as a function does.
            self._authorizer.require(caller, Permission.FUNCTION, ROOT)
        return sealed_variables(environment, self._cipher)

    def resolved(self, caller: Caller, request: RequestT) -> RequestT:
        """The request with the environment that its manifest names; raises InvalidInput if there is none."""
        environment = self.resolve(caller, request.manifest)
        return replace(request, manifest=None, environment=environment or request.environment)

    def _named(self, caller: Caller, name: str, field: str) -> Environment:
        try:
            return self.get(caller, name)
        except EnvironmentNotFound as error:
            known = ", ".join(each for each, _ in self.list_all(caller)) or "none"
            raise InvalidInput(field, f"there is no {name!r:.60}; there are: {known:.200}") from error


def inline_environment(text: str, field: str) -> Environment:
    """The environment that a manifest in JSON describes."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, f"is not JSON ({error})"[:300]) from error
    if not isinstance(body, dict):
        raise InvalidInput(field, "must be a JSON object with pip and env_vars")
    return environment_of(body, field)


def environment_of(body: Mapping[str, Any], field: str) -> Environment:
    """The environment that a manifest describes; whatever it asks for beyond that is refused by name."""
    for key in body:
        if key not in KNOWN_KEYS:
            raise InvalidInput(_inside(field, key), "is not known here; a manifest has pip and env_vars")
    for key in UNSERVED_KEYS:
        if body.get(key):
            raise InvalidInput(
                _inside(field, key), "is not supported; list packages under pip and leave it out"
            )
    return Environment(
        _packages(body.get("pip"), _inside(field, "pip")),
        _variables(body.get("env_vars"), _inside(field, "env_vars")),
    )


def _packages(given: Any, field: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_PACKAGES:
        raise InvalidInput(field, f"must be a list of at most {MAX_PACKAGES:,} packages, as pip writes them")
    return tuple(_package(entry, f"{field}[{index}]") for index, entry in enumerate(given))


def _package(given: Any, field: str) -> str:
    if not isinstance(given, str) or not _is_text(given):
        raise InvalidInput(field, f"must be a package, such as 'pillow==11.0', not {given!r:.60}")
    try:
        return str(Requirement(given))
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(field, f"{given!r:.60} is not a package as pip writes them: {reason}") from error


def _variables(given: Any, field: str) -> dict[str, str]:
    """What is wrong with a value is said without showing it."""
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MAX_VARIABLES:
        raise InvalidInput(field, f"must be an object of at most {MAX_VARIABLES:,} strings")
    for name, value in given.items():
        if not VARIABLE_NAME.fullmatch(name):
            raise InvalidInput(field, f"{name!r:.60} is not a name of letters, digits and underscores")
        if not isinstance(value, str) or not _is_text(value):
            raise InvalidInput(_inside(field, name), "must be a string without NUL characters")
    return dict(given)


def _is_text(value: str) -> bool:
    """Whether a process can be given it: no NUL, no half of a character."""
    return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _inside(field: str, key: str) -> str:
    return (f"{field}.{key}" if field else key)[:200]
