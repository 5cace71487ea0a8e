"""The call `http`, with a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lab.system.waiting import PATIENCE
from pyaici.client.calls import CallError
from pyaici.tools.allowed import AllowList
from pyaici.tools.http import MAX_REQUEST_BYTES, Http, Resolver
from pyaici.tools.settings import MAX_RESULT_BYTES
from tests.pyaici.tools.support import Caller


class Handler(BaseHTTPRequestHandler):
    """Answers what the path asks for."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        size = int(self.headers.get("content-length", 0))
        sent = self.rfile.read(size).decode()
        path, _, query = self.path.partition("?")
        step = path.rpartition("/")[2]
        if step.startswith("redirect"):
            self._answer(int(step.removeprefix("redirect")), b"", location=query)
        elif step == "loop":
            self._answer(302, b"", location=self.path)
        elif step == "long":
            self._answer(200, b"x" * int(query))
        elif step == "hang":
            threading.Event().wait(PATIENCE)
        elif step == "latin":
            self._answer(200, "Köln".encode("latin-1"), kind="text/plain; charset=latin-1")
        elif step == "text":
            self._answer(200, b"a-b", kind=f"text/plain; charset={query}")
        elif step == "zip":
            self._answer(200, b"\x1f\x8b", encoding="gzip")
        elif step == "nan":
            self._answer(200, b"[NaN]", kind="application/json")
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = {"method": self.command, "path": self.path, "headers": headers, "body": sent}
            self._answer(200, json.dumps(seen).encode(), kind="application/json")

    do_POST = do_GET

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain", location: str = "", encoding: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "visited=1")
        if location:
            self.send_header("Location", location)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server on all addresses of loopback that its machine has for IPv4."""
    with ThreadingHTTPServer(("127.0.0.5", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def fixed(*addresses: str) -> Resolver:
    """Returns a resolver by which all names have these addresses."""

    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolve


@pytest.fixture
def ask(port: int) -> Callable[..., Any]:
    """Makes a call to a server whose path /a is allowed; its name has no real address."""
    http = Http(AllowList([f"http://localhost:{port}/a"]), 5, fixed("127.0.0.5"))

    def call(path: str, **arguments: Any) -> Any:
        return asyncio.run(http.call("http", {"url": f"http://localhost:{port}{path}", **arguments}))

    return call


def refusal(ask: Callable[..., Any], path: str, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(CallError) as caught:
        ask(path, **arguments)
    return caught.value.code, caught.value.message


def test_get(ask: Callable[..., Any], port: int) -> None:
    answer = ask("/a/x?q=1", headers={"Accept": "text/html"})
    assert answer["status"] == 200 and answer["headers"]["content-type"] == "application/json"
    assert "set-cookie" not in answer["headers"]
    seen = answer["json"]
    assert (seen["method"], seen["path"]) == ("GET", "/a/x?q=1")
    assert seen["headers"].pop("connection") in ("keep-alive", "close")
    assert seen["headers"] == {
        "host": f"localhost:{port}",
        "accept": "text/html",
        "accept-encoding": "identity",
        "user-agent": "aici",
    }


def test_post(ask: Callable[..., Any]) -> None:
    seen = ask("/a", method="POST", json={"town": "Köln"})["json"]
    assert (seen["method"], seen["headers"]["content-type"]) == ("POST", "application/json")
    assert json.loads(seen["body"]) == {"town": "Köln"}
    assert ask("/a", method="POST", body="text")["json"]["body"] == "text"


def test_bodies_of_answers(ask: Callable[..., Any]) -> None:
    assert ask("/a/latin")["body"] == "Köln"
    assert ask("/a/text?utf-16-be")["body"] == "\u612d\ufffd"
    for odd in ("punycode", "unicode_escape", "utf-7", "idna", "undefined", "hex", "nothing", "x" * 900):
        assert ask(f"/a/text?{odd}")["body"] == "a-b", odd
    assert ask("/a/nan")["body"] == "[NaN]"
    assert ask("/a/long?1000")["body"] == "x" * 1000
    assert refusal(ask, f"/a/long?{MAX_RESULT_BYTES + 1}")[0] == "too_long"
    assert refusal(ask, "/a/zip") == (
        "http",
        "the answer is compressed, although the request has not allowed that",
    )


def test_no_cookies_are_kept_and_no_proxy_is_used(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login operator password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    ask("/a")
    assert not {"cookie", "authorization"} & ask("/a")["json"]["headers"].keys()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"method": "PUT"}, "arguments"),
        ({"body": "x"}, "arguments"),
        ({"method": "POST", "body": 1}, "arguments"),
        ({"method": "POST", "body": "x", "json": 1}, "arguments"),
        ({"files": []}, "arguments"),
        ({"headers": []}, "arguments"),
        ({"headers": {"Accept": "a\r\nX: b"}}, "arguments"),
        ({"headers": {"Accept": 1}}, "arguments"),
        ({"headers": {"Host": "evil.example"}}, "refused"),
        ({"headers": {"Cookie": "a=b"}}, "refused"),
        ({"headers": {"Content-Length": "1"}}, "refused"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "refused"),
        ({"method": "POST", "body": "x" * (MAX_REQUEST_BYTES + 1)}, "too_long"),
    ],
)
def test_arguments_that_are_refused(ask: Callable[..., Any], arguments: dict[str, Any], code: str) -> None:
    assert refusal(ask, "/a", **arguments)[0] == code


@pytest.mark.parametrize(
    "url", ["http://localhost:x/a", "http://localhost/a b", "http:\\\\localhost/a", "x" * 5000]
)
def test_urls_that_are_refused(ask: Callable[..., Any], url: str) -> None:
    assert refusal(ask, "", url=url)[0] == "arguments"


def test_paths_that_are_not_allowed(ask: Callable[..., Any]) -> None:
    for path in ("/", "/b", "/ab", "/a/../b", "/a/%2e%2e/b"):
        assert refusal(ask, path)[0] == "refused"


# -- redirects ------------------------------------------------------------------------------------------


def test_redirects_within_the_list(ask: Callable[..., Any]) -> None:
    assert ask("/a/redirect302?/a/x")["json"]["path"] == "/a/x"
    seen = ask("/a/redirect307?/a/x", method="POST", body="text")["json"]
    assert (seen["method"], seen["body"]) == ("POST", "text")
    seen = ask("/a/redirect303?/a/x", method="POST", body="text")["json"]
    assert (seen["method"], seen["body"], "content-type" in seen["headers"]) == ("GET", "", False)


def test_redirects_out_of_the_list(ask: Callable[..., Any], port: int) -> None:
    for target in (
        "/b",
        f"http://127.0.0.5:{port}/a",
        "https://example.org/",
        "//example.org/a",
        "file:///etc/x",
    ):
        assert refusal(ask, f"/a/redirect302?{target}")[0] == "refused", target
    assert "more than 5 times" in refusal(ask, "/a/loop")[1]


def test_secrets_stay_with_their_origin(port: int) -> None:
    allowed = AllowList([f"http://localhost:{port}/a", f"http://127.0.0.5:{port}/a"])
    http = Http(allowed, 5, fixed("127.0.0.5"))
    headers = {"Authorization": "Bearer x", "Accept": "text/html"}

    def seen(target: str) -> dict[str, str]:
        url = f"http://localhost:{port}/a/redirect302?{target}"
        answer = asyncio.run(http.call("http", {"url": url, "headers": headers}))
        return dict(answer["json"]["headers"])

    assert seen("/a/x")["authorization"] == "Bearer x"
    assert "authorization" not in (other := seen(f"http://127.0.0.5:{port}/a/x"))
    assert other["accept"] == "text/html"


# -- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "addresses", [["127.0.0.5"], ["93.184.216.34", "127.0.0.5"], ["::ffff:127.0.0.5"], ["::1"]]
)
def test_a_name_that_stands_for_this_machine_is_refused(port: int, addresses: list[str]) -> None:
    http = Http(AllowList([f"http://example.org:{port}/"]), 5, fixed(*addresses))
    with pytest.raises(CallError) as caught:
        asyncio.run(http.call("http", {"url": f"http://example.org:{port}/"}))
    assert caught.value.code == "refused"


def test_a_name_is_resolved_once_for_each_request(port: int) -> None:
    """A name that stands for another address the next time (rebinding) is not asked again."""
    asked = []

    async def resolve(host: str, _: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.5"] if len(asked) == 1 else ["127.0.0.1"]

    http = Http(AllowList([f"http://localhost:{port}/"]), 5, resolve)
    assert asyncio.run(http.call("http", {"url": f"http://localhost:{port}/"}))["status"] == 200
    assert asked == ["localhost"]


def test_the_next_address_is_tried(port: int) -> None:
    http = Http(AllowList([f"http://localhost:{port}/"]), 5, fixed("127.0.0.6", "127.0.0.5"))
    assert asyncio.run(http.call("http", {"url": f"http://localhost:{port}/"}))["status"] == 200


def test_addresses_that_cannot_be_reached(port: int) -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(None, "Name or service not known")

    for resolver, problem in (
        (fixed("127.0.0.6"), "ConnectError"),
        (fixed(), "no address"),
        (unknown, "not known"),
    ):
        http = Http(AllowList([f"http://localhost:{port}/"]), 5, resolver)
        with pytest.raises(CallError, match=problem) as caught:
            asyncio.run(http.call("http", {"url": f"http://localhost:{port}/"}))
        assert caught.value.code == "http"


def certificate(path: Path) -> Path:
    """Writes a key and its certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


def test_tls_is_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert = certificate(tmp_path / "cert.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert)
    with ThreadingHTTPServer(("127.0.0.5", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"https://localhost:{server.server_port}/"
        other = f"https://127.0.0.5:{server.server_port}/"
        http = Http(AllowList([base, other]), 5, fixed("127.0.0.5"))
        assert asyncio.run(http.call("http", {"url": base}))["status"] == 200
        with pytest.raises(CallError) as caught:
            asyncio.run(http.call("http", {"url": other}))
        assert caught.value.code == "http"
        server.shutdown()


# -- from a controller ------------------------------------------------------------------------------------


def test_a_script_makes_requests(caller: Caller, port: int) -> None:
    url = f"http://127.0.0.5:{port}/a"
    with caller.tools(http_allow=(url,)) as process:
        assert process.tools == 1
        found, outside = caller(
            ("http", {"url": f"{url}/latin"}), ("http", {"url": f"http://127.0.0.5:{port}/b"})
        )
    with caller.tools(http_allow=(url,), seconds=0.01):
        (late,) = caller(("http", {"url": f"{url}/hang"}))
    assert found["value"]["body"] == "Köln"
    assert (outside["code"], late["code"]) == ("refused", "timeout")
