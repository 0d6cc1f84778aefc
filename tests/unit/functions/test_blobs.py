"""Functions read blobs as files, and only what they read is fetched."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.functions.calls import SKIP, settings, text_call
from tidemill.functions.api import ColumnFunction, Computed
from tidemill.functions.blobs import Blob, FileSource
from tidemill.functions.isolation.pool import Isolation
from tidemill.jobs.model.failures import ErrorPolicy


class Recorded(io.BytesIO):
    """Records the reads."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        at = self.tell()
        found = super().read(size)
        self.reads.append((at, len(found)))
        return found


class Broken(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError("the store is away")


def with_blobs(text: str, files: list[Any], isolation: Isolation, policy: ErrorPolicy = SKIP) -> Computed:
    given = pa.record_batch([pa.nulls(len(files), pa.large_binary())], names=["x"])
    call = text_call(text, value_type=pa.binary())
    with ColumnFunction(call, pa.binary(), settings(isolation, policy)) as function:
        return function.compute(given, np.arange(len(files), dtype=np.uint64), {0: files})


@pytest.mark.parametrize("isolation", Isolation)
def test_a_function_reads_only_what_it_asks_for(isolation: Isolation) -> None:
    file = Recorded(b"0123456789" * 100_000)
    text = "def f(x):\n    x.seek(-5, 2)\n    return x.read(2) + f'{x.size()} {x.tell()}'.encode()"
    found = with_blobs(text, [file, None], isolation)
    assert found.values.to_pylist() == [b"561000000 999997", None]
    assert file.reads == [(999_995, 2)]
    assert [failure.exception for failure in found.failures] == ["AttributeError"]


@pytest.mark.parametrize("isolation", Isolation)
def test_each_row_has_its_own_blob_and_each_attempt_a_new_one(isolation: Isolation) -> None:
    text = "def f(x):\n    found = x.read()\n    if found == b'b': raise ValueError\n    return found"
    policy = ErrorPolicy(SKIP.action, attempts=2, backoff_seconds=0)
    files = [Recorded(letter) for letter in (b"a", b"b", b"c")]
    assert with_blobs(text, files, isolation, policy).values.to_pylist() == [b"a", None, b"c"]
    assert [len(file.reads) for file in files] == [1, 2, 1]


@pytest.mark.parametrize("isolation", Isolation)
def test_a_blob_that_cannot_be_read_fails_its_row(isolation: Isolation) -> None:
    found = with_blobs("def f(x): return x.read()", [Broken(b"a"), io.BytesIO(b"b")], isolation)
    assert found.values.to_pylist() == [None, b"b"]
    assert "the store is away" in found.failures[0].message


@pytest.mark.parametrize("isolation", Isolation)
def test_a_blob_cannot_be_read_after_its_call(isolation: Isolation) -> None:
    text = "kept = []\ndef f(x):\n    kept.append(x)\n    return kept[0].read()"
    found = with_blobs(text, [io.BytesIO(b"a"), io.BytesIO(b"b")], isolation)
    assert found.values.to_pylist() == [b"a", None]
    assert [failure.exception for failure in found.failures] == ["ValueError"]


def test_a_blob_is_a_file_like_others() -> None:
    blob = Blob(FileSource(io.BytesIO(b"line one\nline two\n")))
    assert blob.readable()
    assert blob.seekable()
    assert not blob.writable()
    assert io.BufferedReader(blob).readlines() == [b"line one\n", b"line two\n"]


def test_a_blob_can_be_read_to_its_end_and_not_beyond() -> None:
    blob = Blob(FileSource(io.BytesIO(b"abc")))
    assert (blob.read(2), blob.readall(), blob.read(5), blob.tell()) == (b"ab", b"c", b"", 3)
    assert (blob.seek(-2, os.SEEK_CUR), blob.read(1)) == (1, b"b")
    assert (blob.seek(10), blob.read()) == (10, b"")
    with pytest.raises(ValueError, match="before the start"):
        blob.seek(-1)
