"""Whether a statement that groups rows says of every column what becomes of its values."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from sqlglot import exp

from tidemill.errors import InvalidInput

# What is inside these is not one value per row of the result, or nobody here can tell.
OPAQUE: Final = (exp.AggFunc, exp.Filter, exp.Window, exp.Query, exp.Subquery, exp.Anonymous)
UNNAMED_KEYS: Final = ("all", "cube", "rollup", "grouping_sets", "totals")
SEVERAL_KEYS: Final = (exp.Cube, exp.Rollup, exp.GroupingSets)


def check_grouped(tree: exp.Query, field: str) -> None:
    """Raises InvalidInput for a column that is neither grouped by nor in an aggregate."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is not None and _has_several(group):
            continue
        if group is None and not any(_has_aggregate(item) for item in select.selects):
            continue
        keys = set() if group is None else set(group.expressions)
        for item in select.selects:
            for column in _loose_columns(item, keys):
                raise InvalidInput(
                    field,
                    f"the column {column.name!r:.80} is neither in GROUP BY nor in an aggregate such as "
                    f"min({column.name:.80})",
                )


def _has_several(group: exp.Group) -> bool:
    is_unnamed = any(group.args.get(part) for part in UNNAMED_KEYS)
    return is_unnamed or any(isinstance(key, SEVERAL_KEYS) for key in group.expressions)


def _has_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Window | exp.Query | exp.Subquery):
        return False
    return isinstance(node, exp.AggFunc) or any(_has_aggregate(part) for part in node.iter_expressions())


def _loose_columns(node: exp.Expr, keys: Set[exp.Expr]) -> Iterator[exp.Column]:
    if node in keys or isinstance(node, OPAQUE):
        return
    if isinstance(node, exp.Column):
        yield node
        return
    for part in node.iter_expressions():
        yield from _loose_columns(part, keys)
