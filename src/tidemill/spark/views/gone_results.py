"""Results of source rows that are gone, found by what their functions were given.

An overwrite gives all rows of a source other ids, so a view has nothing under the ids of the rows that are
there now. It still has the rows made from those before, and the source can be read as it was then: the inputs
of those rows lead to their results, and the function's fingerprints tell whether a result is right. If that
version of the source is gone, there is nothing to be found, and the functions are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.lance.fingerprints import Hashes, Mask, fingerprints
from tidemill.spark.reading import Positions, RowIds


@dataclass(frozen=True)
class HeldValues:
    """What a view holds as the results of source rows, in their order; null where it holds none."""

    values: pa.Array
    is_there: Mask


# Tells which of the values are right results of a function for these inputs of rows with these ids.
RightResults: TypeAlias = Callable[[pa.RecordBatch, RowIds, HeldValues], Mask]


@dataclass(frozen=True)
class FoundResults:
    """Results by the positions of the rows that they were found for."""

    positions: Positions
    values: pa.Array | None = None


NOTHING_FOUND = FoundResults(np.empty(0, np.int64))


class GoneResults:
    """One function's results of rows that are gone; what they were given is read when first asked for.

    `inputs` reads it batch by batch with the ids of the rows, `held` what the view has for such ids. No more
    than a hash and an id is kept for each row.
    """

    def __init__(
        self,
        inputs: Callable[[], Iterator[tuple[pa.RecordBatch, RowIds]]],
        held: Callable[[RowIds], HeldValues],
        is_right: RightResults,
    ) -> None:
        self._inputs = inputs
        self._held = held
        self._is_right = is_right

    def find(self, inputs: pa.RecordBatch) -> FoundResults:
        """The results for the same inputs, where there are any."""
        if not len(inputs) or not len(self._known[0]):
            return NOTHING_FOUND
        hashes, row_ids = self._known
        given = fingerprints(inputs.columns)
        places = np.minimum(np.searchsorted(hashes, given), len(hashes) - 1)
        positions = np.flatnonzero(hashes[places] == given)
        if not len(positions):
            return NOTHING_FOUND
        # Several rows may be given the same, and one id is looked up only once.
        wanted, of_position = np.unique(row_ids[places[positions]], return_inverse=True)
        return FoundResults(positions, self._held(wanted).values.take(pa.array(of_position)))

    @cached_property
    def _known(self) -> tuple[Hashes, RowIds]:
        """The rows with right results: hashes of what they were given, in order, and their ids."""
        hashes: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        ids: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        for inputs, row_ids in self._inputs():
            is_right = self._is_right(inputs, row_ids, self._held(row_ids))
            hashes.append(fingerprints(inputs.columns)[is_right])
            ids.append(row_ids[is_right])
        every = np.concatenate(hashes)
        order = np.argsort(every, kind="stable")
        return every[order], np.concatenate(ids)[order]
