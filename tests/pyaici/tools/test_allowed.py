"""The list of URLs that the operator allows, and addresses."""

from __future__ import annotations

import httpx2
import pytest

from aicirt.contract.errors import AiciError
from pyaici.tools.allowed import AllowList, Place, allows_address

ALLOWED = AllowList(
    ["https://example.org/api/v1", "http://localhost:8080", "https://münchen.example/", "http://[::1]:9/x"]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/api/v1",
        "https://EXAMPLE.org:443/api/v1/towns?name=Ulm#top",
        "https://example.org/api/%76%31/x",
        "http://localhost:8080",
        "http://localhost:8080/anything",
        "https://xn--mnchen-3ya.example/x",
        "http://[::1]:9/x/y",
    ],
)
def test_urls_that_begin_with_one_of_the_operators(url: str) -> None:
    assert Place.of(httpx2.URL(url)) in ALLOWED


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/api",
        "https://example.org/api/v10",
        "https://example.org/api//v1",
        "http://example.org/api/v1",
        "https://example.org:8443/api/v1",
        "https://example.org.evil.example/api/v1",
        "https://sub.example.org/api/v1",
        "http://localhost/",
        "http://localhost.:8080/",
        "http://127.0.0.1:8080/",
        "http://[::1]:10/x",
    ],
)
def test_other_urls(url: str) -> None:
    assert Place.of(httpx2.URL(url)) not in ALLOWED


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/api/v1/%2e%2e/admin",
        "https://example.org/api/v1/..%2fadmin",
        "https://example.org/api/v1/..%5cadmin",
        "https://example.org/api/v1/%00",
        "https://user:password@example.org/api/v1",
        "ftp://example.org/api/v1",
        "/api/v1",
    ],
)
def test_urls_that_programs_read_in_different_ways(url: str) -> None:
    with pytest.raises(ValueError, match="it"):
        Place.of(httpx2.URL(url))


def test_names_are_compared_and_resolved_as_they_are_on_the_wire() -> None:
    """The resolver of Python would write ß as ss, which is another host."""
    assert Place.of(httpx2.URL("https://faß.example/")).host == "xn--fa-hia.example"


def test_dots_are_resolved_before_the_comparison() -> None:
    for url in ("https://example.org/api/v1/../admin", "https://example.org/api/v1/./../../api/v2"):
        try:
            assert Place.of(httpx2.URL(url)) not in ALLOWED
        except ValueError:
            pass


@pytest.mark.parametrize(
    "url", ["example.org", "https://example.org/?a=1", "https://example.org/#a", "https://"]
)
def test_entries_that_are_refused(url: str) -> None:
    with pytest.raises(AiciError, match="--http-allow"):
        AllowList([url])


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_public_addresses(address: str) -> None:
    assert allows_address("example.org", address)
    assert not allows_address("localhost", address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1"),
        *("ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1", "5f00::1"),
    ],
)
def test_addresses_of_private_networks(address: str) -> None:
    assert not allows_address("example.org", address)


def test_addresses_that_are_allowed_as_numbers() -> None:
    assert allows_address("10.0.0.1", "10.0.0.1")
    assert not allows_address("10.0.0.1", "10.0.0.2")
    assert allows_address("::1", "::1")
    assert allows_address("localhost", "127.0.0.1") and allows_address("localhost", "::1")
    assert not allows_address("localhost", "192.168.1.1")
