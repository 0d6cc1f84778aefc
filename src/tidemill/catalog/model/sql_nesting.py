"""Limits the nesting of SQL, because sqlglot parses recursively."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlglot.errors import TokenError

from tidemill.errors import InvalidInput

# sqlglot makes up to 28 nested calls for each level of brackets; Python allows 1,000.
MAX_NESTING: Final = 25
# Brackets in quotes do not count.
QUOTED_OR_BRACKET: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|([(\[{])|([)\]}])""")


@contextmanager
def bounded_nesting(text: str, field: str) -> Iterator[None]:
    """Wraps all work of sqlglot on a text; raises InvalidInput if it is nested too deeply.

    Counts the brackets first. Other causes of deep trees, such as long chains of operators, show up only
    while sqlglot works, as a RecursionError, which is translated.
    """
    if _nesting(text) > MAX_NESTING:
        raise InvalidInput(
            field, f"is nested too deeply; at most {MAX_NESTING} levels of brackets are allowed"
        )
    try:
        yield
    except (RecursionError, TokenError) as error:
        # The tokenizer wraps every error in TokenError; syntax errors were found earlier, by the parser.
        raise InvalidInput(
            field, "is nested too deeply; use fewer brackets and shorter chains of operators"
        ) from error


def _nesting(text: str) -> int:
    depth = deepest = 0
    for matched in QUOTED_OR_BRACKET.finditer(text):
        depth += bool(matched[1]) - bool(matched[2])
        deepest = max(deepest, depth)
    return deepest
