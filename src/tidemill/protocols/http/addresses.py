"""The address of a client, which is what its failed logins and connections are counted by."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers

from tidemill.errors import InvalidInput

FORWARDED_FOR: Final = "x-forwarded-for"
# The smallest IPv6 network that a customer of a provider gets: a client can use any address in it.
IPV6_PREFIX: Final = 64


class Networks:
    """Addresses of proxies whose `X-Forwarded-For` is believed."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        try:
            self._networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in networks]
        except ValueError as error:
            raise InvalidInput("trusted_proxies", f"{error}") from error

    def contains(self, address: str) -> bool:
        parsed = _parsed(address) if self._networks else None
        return parsed is not None and any(parsed in network for network in self._networks)


NO_NETWORKS: Final = Networks()


def client_address(peer: str, headers: Headers, trusted: Networks) -> str:
    """The peer, or the last address in `X-Forwarded-For` that no trusted proxy has, if a proxy sent it."""
    if not trusted.contains(peer):
        return address_key(peer)
    forwarded = ",".join(headers.getlist(FORWARDED_FOR)).split(",")
    for hop in reversed([hop.strip() for hop in forwarded]):
        if _parsed(hop) is None:
            break
        if not trusted.contains(hop):
            return address_key(hop)
    return address_key(peer)


def address_key(address: str) -> str:
    """One key for all the addresses that one client has."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, IPV6_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed
