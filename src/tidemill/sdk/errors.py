"""What the SDK raises: one tree, with the server's refusals typed by what went wrong.

ClientError
├── TidemillRequestError          the server refused a request
│   ├── InvalidRequest            something in it is not right; the message names the field
│   ├── Unauthenticated · Forbidden
│   ├── NotFound · AlreadyExists · Conflict
│   ├── RequestTooLarge · NotSupported · TooManyRequests
│   └── ServerFault · ServerUnavailable
├── FunctionDiffers               the catalog has another version of a function than the program
├── ServerUnreachable             no answer at all
├── ServerNotStarted              the embedded server did not start
├── JobFailed · JobCancelled      how a job ended
└── WaitTimedOut                  the job continues
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from tidemill.jobs.model.jobs import Failure, JobState


class EndedJob(Protocol):
    """What an error says about a job."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> JobState: ...
    @property
    def failure(self) -> Failure | None: ...


class ClientError(Exception):
    """Everything the SDK raises, apart from TypeError and ValueError for wrong arguments."""


class TidemillRequestError(ClientError):
    """The server refused a request: its HTTP status, its own code and what it says."""

    def __init__(self, status: int, code: int | str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class InvalidRequest(TidemillRequestError): ...


class Unauthenticated(TidemillRequestError):
    """The server has clients and does not know this one; `connect` takes the `credential` of one."""


class Forbidden(TidemillRequestError):
    """The client's grants do not allow it; the message names the permission that is missing, and where."""


class NotFound(TidemillRequestError): ...


class AlreadyExists(TidemillRequestError): ...


class Conflict(TidemillRequestError): ...


class RequestTooLarge(TidemillRequestError): ...


class NotSupported(TidemillRequestError): ...


class TooManyRequests(TidemillRequestError): ...


class ServerFault(TidemillRequestError): ...


class ServerUnavailable(TidemillRequestError): ...


class FunctionDiffers(ClientError):
    """A column is filled by another version of the function; the message says how to replace it."""


class ServerUnreachable(ClientError):
    """Nothing responds at the address."""


class ServerNotStarted(ClientError):
    """The embedded server ended or stayed silent; the message has the end of its log."""


class JobFailed(ClientError):
    """A job ended as FAILED; has the exception, traceback and row when a function raised."""

    def __init__(self, job: EndedJob) -> None:
        failure = job.failure
        self.job = job
        self.exception = failure.exception if failure else None
        self.traceback = failure.traceback if failure else None
        self.row_id = failure.row_id if failure else None
        message = failure.message if failure else "no reason given"
        super().__init__(f"Job {job.id} failed: {message}")
        if self.traceback:
            self.add_note(self.traceback)


class JobCancelled(ClientError):
    """A job was cancelled while it was waited for."""

    def __init__(self, job: EndedJob) -> None:
        super().__init__(f"Job {job.id} was cancelled")
        self.job = job


class WaitTimedOut(ClientError, TimeoutError):
    """The job had not ended in time; it continues."""

    def __init__(self, job: EndedJob, timeout: float) -> None:
        super().__init__(
            f"Job {job.id} is {job.state} after {timeout:g} s; it continues, so wait again or cancel it"
        )
        self.job = job


# The Lance protocol's numbers for "is there already".
LANCE_ALREADY_EXISTS: Final = frozenset({2, 5, 7, 9, 23})
BY_STATUS: Final[Mapping[int, type[TidemillRequestError]]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: NotSupported,
    406: NotSupported,
    409: Conflict,
    412: Conflict,
    413: RequestTooLarge,
    422: InvalidRequest,
    429: TooManyRequests,
    501: NotSupported,
    503: ServerUnavailable,
}


def request_error(status: int, body: Any, fallback: str) -> TidemillRequestError:
    """The error for a response, in either of the server's two formats."""
    code, message = _read(body)
    if code in LANCE_ALREADY_EXISTS or (isinstance(code, str) and code.endswith("_already_exists")):
        kind: type[TidemillRequestError] = AlreadyExists
    else:
        kind = BY_STATUS.get(status, ServerFault if status >= 500 else InvalidRequest)
    return kind(status, code, message or fallback or f"The server answered {status}")


def _read(body: Any) -> tuple[int | str | None, str | None]:
    if not isinstance(body, dict):
        return None, None
    error = body.get("error")
    if isinstance(error, dict):
        return error.get("code"), error.get("message")
    return body.get("code"), error if isinstance(error, str) else None
