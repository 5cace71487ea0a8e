"""Addresses of clients as limits count them: one machine may have a whole IPv6 network, which counts once."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

#: bits of an IPv6 address that name the network of one site; the machine chooses the others freely
_IPV6_NETWORK_BITS = 64


@lru_cache(4096)
def network_of(address: str) -> str:
    """Returns the name under which limits count a client: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((int(found), _IPV6_NETWORK_BITS), strict=False))
