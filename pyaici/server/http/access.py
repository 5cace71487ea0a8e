"""Identifies the user, and checks role, request rate and origin before any byte of the body is read.

The headers Host and Origin count, since any page that a user opens can send requests to this server.
"""

from __future__ import annotations

import ipaddress
import math
import socket
import time
from collections import OrderedDict
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from aicirt.contract.owners import ANONYMOUS
from pyaici.server.http.errors import ApiError, forbidden, refuse
from pyaici.server.http.users import Role, User, UserFile

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyaici.server.settings import ServerSettings

#: bits of an IPv6 address that name a site, which chooses the rest freely: it has 65 536 networks of 64 bits
_IPV6_SITE_BITS = 48
_LOOPBACK = "127.0.0.1"
#: number of callers whose rate is remembered; the least recent one is forgotten first
_REMEMBERED = 10_000
#: paths that need no token, and the folder of the files of those pages
_PUBLIC = frozenset({"/", "/health", "/ready", "/metrics", "/openapi.json"})
_PUBLIC_FOLDER = "/playground/"
#: paths under which all requests except reads need the role `upload`
_UPLOADS = ("/v1/controllers", "/v1/scripts", "/v1/tags")
_READS = frozenset({"GET", "HEAD"})
#: these methods change nothing, and pages of other sites may not read the answers
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


@lru_cache(4096)
def network_of(address: str, *, loopback_apart: bool = False) -> str:
    """Returns the name under which limits count a client: an IPv4 address, or an IPv6 site of 48 bits.

    All addresses of the loopback interface are one, since each user of the machine has millions of them;
    with `loopback_apart`, each counts.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback and not loopback_apart:
        return _LOOPBACK
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((int(found), _IPV6_SITE_BITS), strict=False))


class Gate:
    """Admits requests by the users' tokens, roles and request rates."""

    def __init__(self, settings: ServerSettings) -> None:
        """Reads the file of users. Raises AiciError if the file is invalid."""
        self._users = UserFile(settings.users) if settings.users else None
        #: role of users without a token
        self._role = Role[settings.role_without_token.upper()]
        self._network_of = partial(network_of, loopback_apart=settings.loopback_apart)
        self._rate = settings.requests_per_minute / 60
        #: number of requests that may come at once
        self._burst = max(1.0, settings.requests_per_minute / 6)
        #: by caller: the number of requests left, and the time at which it was counted
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, request: HTTPConnection, needed: Role) -> User:
        """Returns the user, if role and request rate allow the request. Raises ApiError.

        Refused requests count as well. A request with a wrong token counts for the address, since it has no
        valid user.
        """
        token = _token(request)
        # clients of OpenAI's API always send a token; without a file of users it is ignored
        known = self._users.find(token) if self._users and token is not None else None
        user = known or User(
            ANONYMOUS, self._role, self._network_of(request.client.host if request.client else "")
        )
        if self._rate:
            self._count(user.caller)
        if known is None and self._users and token is not None:
            raise _unauthorized("the token is unknown")
        if self._users and token is None and "authorization" in request.headers:
            raise _unauthorized("the Authorization header has no token")
        if self._users is None and user.role < needed:  # no token can help
            role = needed.name.lower()
            raise forbidden(
                f"this request needs the role {role}, which this server gives to nobody: start it with "
                f"--anonymous {role}, or with --users FILE"
            )
        _check_role(user, needed)
        return user

    def _count(self, caller: str) -> None:
        now = time.monotonic()
        left, since = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        if left < 1:
            self._left[caller] = left, now
            seconds = math.ceil((1 - left) / self._rate)
            raise ApiError(
                429,
                f"more than {self._rate * 60:.0f} requests per minute: try again in {seconds} s",
                kind="rate_limit_error",
                code="rate_limit",
                headers={"Retry-After": str(seconds)},
            )
        self._left[caller] = left - 1, now
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)


class Authentication:
    """Middleware that finds the user of every request, and refuses the request before its body is read.

    Every path needs a token unless it is listed as public, so a new route is protected without further work.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with its user in the request's state, or answers with the error."""
        if scope["type"] == "http" and not _is_public(scope):
            try:
                user = self._gate.admit(HTTPConnection(scope), _needed(scope))
            except ApiError as error:
                await refuse(scope, send, error)
                return
            scope.setdefault("state", {})["user"] = user
        await self._app(scope, receive, send)


def _is_public(scope: Scope) -> bool:
    path = scope["path"]
    return scope["method"] in _READS and (path in _PUBLIC or path.startswith(_PUBLIC_FOLDER))


def _needed(scope: Scope) -> Role:
    changes = scope["method"] not in _READS and scope["path"].startswith(_UPLOADS)
    return Role.UPLOAD if changes else Role.RUN


def _check_role(user: User, needed: Role) -> None:
    if user.role >= needed:
        return
    if user.name == ANONYMOUS:
        raise _unauthorized(f"this request needs a token with the role {needed.name.lower()}")
    raise forbidden(
        f"{user.name} has the role {user.role.name.lower()}; "
        f"this request needs the role {needed.name.lower()}"
    )


def _token(request: HTTPConnection) -> str | None:
    """Returns the token of `Authorization: Bearer` or `x-api-key`, which clients of Anthropic's API send."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key") or None


def _unauthorized(message: str) -> ApiError:
    return ApiError(
        401,
        f"{message}: send Authorization: Bearer TOKEN (the command aici: --token or $AICI_TOKEN)",
        kind="authentication_error",
        code="unauthorized",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _user(request: Request, needed: Role) -> User:
    """Returns the user that `Authentication` has found. Raises ApiError if the role is too low."""
    user: User = request.state.user
    _check_role(user, needed)
    return user


async def _runner(request: Request) -> User:
    return _user(request, Role.RUN)


async def _uploader(request: Request) -> User:
    return _user(request, Role.UPLOAD)


#: types of a route's parameter: the user, who has at least this role
Runner = Annotated[User, Depends(_runner)]
Uploader = Annotated[User, Depends(_uploader)]


class Origins:
    """Refuses requests that pages of other sites send, and requests to names that are not this server's.

    A page needs no permission to send what a form can send. If the page's own name resolves to this server,
    browsers treat the server as the page's own (DNS rebinding).

    That attack needs a name. On loopback the server therefore answers only to names of loopback and names in
    the settings. On other addresses it also answers to IP addresses and its own host name.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins)
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._local = is_loopback(settings.host)
        if not self._local:
            self._hosts |= {socket.gethostname().lower(), settings.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles an ASGI request: refuses it, or passes it on."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await refuse(scope, send, ApiError(403, problem, kind="permission_error", code="origin"))
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._answers_to(name := _name_of(host)):
            return f"{name!r} is not a name of this server; to allow it, use --allowed-hosts {name}"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or scope["method"] in _HARMLESS or origin in self._origins:
            return None
        if origin.partition("://")[2] == host:
            return None
        return f"pages of {origin} may not call this server; to allow them, use --cors-origins {origin}"

    def _answers_to(self, name: str) -> bool:
        if is_loopback(name) or name in self._hosts or "*" in self._hosts:
            return True
        return not self._local and _is_address(name)


def is_loopback(name: str) -> bool:
    """Tells whether a host name or address leads to this machine alone."""
    if name in ("localhost", ""):
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _name_of(host: str) -> str:
    """Returns the name in a Host header; an invalid header is returned whole, and matches no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
