"""What keeps browsers from being used against the server: headers, and whom a server without clients hears.

A server without authentication trusts whoever reaches it, and listens on loopback addresses only. A page in
the user's browser reaches it too: by a form or a script that sends to 127.0.0.1, or under a name of its own
that it lets point there (DNS rebinding). Browsers say in `Host` and `Origin` which name was asked for and
which page asks, and no page can change that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.errors import UntrustedOrigin

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
# Constant, so that the HTTP server adds them to every response, its own refusals included.
SECURITY_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)
NOT_STORED: Final = (b"cache-control", b"no-store")
# With an ETag: the client may keep it and ask whether it still holds. Nobody in between may.
REVALIDATED: Final = (b"cache-control", b"private, no-cache")


def add_cache_control(response: Response) -> None:
    """Most responses depend on the caller, and some contain credentials: nobody stores them unasked."""
    chosen = NOT_STORED
    for name, _ in response.raw_headers:
        if name == b"cache-control":
            return
        if name == b"etag":
            chosen = REVALIDATED
    response.raw_headers.append(chosen)


class TrustedHosts:
    """Names under which a server without authentication can be asked, by hand or by a page from there."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = LOOPBACK | {name.lower() for name in more}

    def check(self, headers: Headers) -> None:
        """Raises UntrustedOrigin. Requests without these headers do not come from a browser."""
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and _host_of(f"//{host}") not in self._names:
            raise UntrustedOrigin("Host", host)
        if origin is not None and _host_of(origin) not in self._names:
            raise UntrustedOrigin("Origin", origin)


@lru_cache(maxsize=64)
def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""
