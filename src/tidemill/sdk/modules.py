"""Which modules every worker has, and which travel with a function."""

from __future__ import annotations

import functools
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

# Part of every worker, also when they run from a source tree.
PART_OF_WORKERS: Final = frozenset({"py4j", "pyspark", "tidemill"})


def is_local(module: Any) -> bool:
    """Whether a module is the user's own: neither installed, nor built in, nor `__main__` itself."""
    if not isinstance(module, ModuleType) or module.__name__.partition(".")[0] in PART_OF_WORKERS:
        return False
    return any(not _is_installed(place) for place in _places(module))


def is_local_name(name: str | None) -> bool:
    """Whether code of the module with that name has to travel along; unknown modules have to."""
    if name is None or name == "__main__":
        return True
    module = sys.modules.get(name)
    return is_local(module) if module is not None else name.partition(".")[0] not in PART_OF_WORKERS


def local_modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name != "__main__" and is_local(module) and module.__name__ == name:
            yield module


def _places(module: ModuleType) -> list[str]:
    found = vars(module).get("__file__")
    if isinstance(found, str):
        return [found]
    # A namespace package has no file, only folders.
    search = vars(module).get("__path__") or ()
    return [place for place in search if isinstance(place, str)]


@functools.lru_cache(maxsize=4096)
def _is_installed(place: str) -> bool:
    path = Path(place).absolute()
    return any(
        path.is_relative_to(root) or path.resolve().is_relative_to(root) for root in _installed_roots()
    )


@functools.cache
def _installed_roots() -> tuple[Path, ...]:
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known.update(site.getsitepackages())
    known.add(site.getusersitepackages())
    return tuple(Path(root).absolute() for root in known if root)
