"""What is wrong with storage, told from the errors of the operating system, of Lance and of Spark.

Python's own errors carry a number. Libraries written in Rust or Java carry it, or its text, in their message.
A full disk and storage that is read-only or broken are nobody's mistake, neither the caller's nor ours: they
are refused with their reason, and the same request succeeds once somebody has repaired the storage.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from tidemill.errors import StorageFull, Unavailable

# EFBIG: the process may not write larger files (RLIMIT_FSIZE), which is a quota in other words.
FULL_NUMBERS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
BROKEN_NUMBERS: Final = frozenset(
    {
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EMFILE,
        errno.ENFILE,
    }
)
FULL_TEXT: Final = re.compile(
    r"No space left on device|Disk quota exceeded|File too large \(|database or disk is full", re.IGNORECASE
)
BROKEN_TEXT: Final = re.compile(
    r"Read-only file system|Input/output error|Stale file handle|Transport endpoint is not connected"
    r"|Too many open files|Generic S3 error|HTTP error: "
)
# Rust's text of an error of the operating system.
NUMBER_IN_TEXT: Final = re.compile(r"\(os error (\d{1,3})\)")
MAX_REASON: Final = 300


def storage_failure(error: BaseException, what: str) -> Unavailable | None:
    """The refusal for an error of storage, or None if the error is about something else.

    `what` is what could not be read or written.
    """
    numbers = {int(number) for number in NUMBER_IN_TEXT.findall(str(error))}
    if isinstance(error, OSError) and error.errno is not None:
        numbers.add(error.errno)
    reason = _reason(error)
    if numbers & FULL_NUMBERS or FULL_TEXT.search(str(error)):
        return StorageFull(what, reason)
    if numbers & BROKEN_NUMBERS or BROKEN_TEXT.search(str(error)):
        return Unavailable(f"The storage of {what} does not work: {reason}")
    return None


def _reason(error: BaseException) -> str:
    """The system's own words where they can be told; else the first line without the library's source."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror
    text = str(error)
    found = FULL_TEXT.search(text) or BROKEN_TEXT.search(text)
    if found is not None and NUMBER_IN_TEXT.search(text):
        return found[0].rstrip(" (")
    line = next(iter(text.splitlines()), "")
    return re.split(r", (?=/|rust/|location:)", line)[0][:MAX_REASON]
