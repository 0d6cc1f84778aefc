"""How deeply SQL may be nested that sqlglot reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlglot.errors import TokenError

from tidemill.errors import InvalidInput

# sqlglot recurses in Python, by up to 28 calls for each level of brackets, and Python allows 1,000.
MAX_NESTING: Final = 25
# Brackets in quotes are text.
QUOTED_OR_BRACKET: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|([(\[{])|([)\]}])""")


@contextmanager
def bounded_nesting(text: str, field: str) -> Iterator[None]:
    """For all work on a text that sqlglot does; raises InvalidInput when it is nested too deeply.

    Brackets are counted before. What else makes a tree deep, such as a chain of operators, shows only during
    the work: its RecursionError is translated.
    """
    if _nesting(text) > MAX_NESTING:
        raise InvalidInput(
            field, f"is nested too deeply; at most {MAX_NESTING} levels of brackets are allowed"
        )
    try:
        yield
    except (RecursionError, TokenError) as error:
        # The tokenizer wraps any error; those in the text itself were found when it was parsed.
        raise InvalidInput(
            field, "is nested too deeply; use fewer brackets and shorter chains of operators"
        ) from error


def _nesting(text: str) -> int:
    depth = deepest = 0
    for found in QUOTED_OR_BRACKET.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        deepest = max(deepest, depth)
    return deepest
