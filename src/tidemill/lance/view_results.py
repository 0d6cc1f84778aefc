"""Where the results of views' functions are kept between refreshes, and while one runs.

Fingerprints of published values stay for as long as the view exists, so they lie apart from checkpoints,
which are removed when they get old. Both have a folder for each function: a function that was changed has
another digest, and nothing of it counts for the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidemill.jobs.model.views import KeptResults
from tidemill.lance.checkpoint_files import find_checkpoints
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.fingerprints import list_segments, merge_segments, remove_segments


class LanceViewResults:
    def __init__(self, root: str, checkpoints: LanceCheckpoints) -> None:
        self._root = root
        self._checkpoints = checkpoints

    def find(self, subject_id: UUID, digest: str, scope: str, segments: Sequence[str]) -> KeptResults:
        location = self._checkpoints.location(subject_id, digest, scope)
        return KeptResults(
            segment_location=f"{self._root}/{subject_id}/{digest.removeprefix('sha256:')[:16]}",
            checkpoint_location=location,
            segments=tuple(segments),
            checkpoints=tuple(find_checkpoints(location)),
        )

    def merge_segments(self, kept: KeptResults, segments: Sequence[str], rows: int) -> tuple[str, ...]:
        return merge_segments(kept.segment_location, segments, rows)

    def keep_only(self, kept: KeptResults, segments: Sequence[str]) -> None:
        remove_segments(set(list_segments(kept.segment_location)).difference(segments))

    def clear_checkpoints(self, kept: KeptResults) -> None:
        self._checkpoints.clear(kept.checkpoint_location)
