"""The URLs that the operator allows, and the addresses that their names may have."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import httpx2

from aicirt.contract.errors import AiciError

_PORTS = {"http": 80, "https": 443}
#: networks whose addresses stand for one of IPv4, in their last bytes (NAT64) or after the prefix (6to4)
_NAT64, _6TO4 = ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16")
#: all addresses of IPv6 that are public: others stand for private ones of IPv4, or are for sites
_PUBLIC = ipaddress.ip_network("2000::/3")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Place:
    """A URL without its query, in normal form."""

    scheme: str
    host: str
    port: int
    #: segments of the path, without escapes
    path: tuple[str, ...]

    @classmethod
    def of(cls, url: httpx2.URL) -> Place:
        """Raises ValueError if the URL is not one of HTTP, or if programs read it in different ways."""
        if url.scheme not in _PORTS or not url.host:
            raise ValueError("it does not begin with http:// or https:// and a host")
        if url.userinfo:
            raise ValueError("it has a user name or a password")
        raw = url.raw_path.partition(b"?")[0].decode("ascii")
        path = tuple(unquote(segment) for segment in raw.split("/")[1:])
        if any(part in (".", "..") or "/" in part or "\\" in part or not part.isprintable() for part in path):
            raise ValueError("its path has segments such as .. or an escaped /")
        return cls(url.scheme, url.raw_host.decode("ascii").lower(), url.port or _PORTS[url.scheme], path)


class AllowList:
    """The URLs that requests may have: those that begin with one of the operator's."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Raises AiciError for an invalid URL."""
        self._places: list[Place] = []
        for text in urls:
            try:
                url = httpx2.URL(text)
                if url.query or url.fragment:
                    raise ValueError("it has a query or a fragment")
                place = Place.of(url)
            except (httpx2.InvalidURL, ValueError) as error:
                raise AiciError(f"--http-allow {text}: {error}; write e.g. https://host/path") from None
            path = place.path[:-1] if place.path[-1:] == ("",) else place.path
            self._places.append(Place(place.scheme, place.host, place.port, path))

    def __contains__(self, place: Place) -> bool:
        return any(
            (place.scheme, place.host, place.port) == (known.scheme, known.host, known.port)
            and place.path[: len(known.path)] == known.path
            for known in self._places
        )


def allows_address(host: str, text: str) -> bool:
    """Returns whether a connection to a host that the operator allows may go to this IP address.

    Private addresses and those of this machine only if the host is written as one, or as `localhost`.
    """
    address = _plain(ipaddress.ip_address(text.partition("%")[0]))
    try:
        return address == _plain(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if host == "localhost":
        return address.is_loopback
    public = address.version == 4 or address in _PUBLIC
    return public and address.is_global and not address.is_multicast


def _plain(address: _Address) -> _Address:
    """Returns the address of IPv4 that one of IPv6 stands for, else the same."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if address in _6TO4 and address.sixtofour is not None:
            return address.sixtofour
    return address
