"""Who calls, whether they may, and whether they call too often."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from pyaici.server.errors import ApiError, forbidden
from pyaici.server.users import Role, User, UserFile

if TYPE_CHECKING:
    from pyaici.server.settings import ServerSettings

#: callers whose pace is remembered: those that have been quiet longest are forgotten first
_REMEMBERED = 10_000
#: of those without a token: what they upload is theirs together
ANONYMOUS = "anonymous"


class Gate:
    """Knows the users and how often they have called."""

    def __init__(self, settings: ServerSettings) -> None:
        """Raises AiciError for a file of users that makes no sense."""
        self._users = UserFile(settings.users) if settings.users else None
        self._anonymous = User(ANONYMOUS, Role[settings.role_without_token.upper()])
        self._rate = settings.requests_per_minute / 60
        #: requests that may come at once
        self._burst = max(1.0, settings.requests_per_minute / 6)
        #: by caller: how many requests they have left, and when that was
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def identify(self, request: Request) -> User:
        """Whose token it is; without one, nobody in particular. Raises ApiError for a wrong token."""
        token = _token(request)
        if token is None:
            return self._anonymous
        user = self._users.find(token) if self._users else None
        if user is None:
            if self._users is None:
                # clients of OpenAI's API always send one; without a file of users it means nothing
                return self._anonymous
            raise _unauthorized("this token is not known here")
        return user

    def admit(self, request: Request, needed: Role) -> User:
        """The user, if the role allows it and the pace too. Raises ApiError."""
        user = self.identify(request)
        if user.role < needed:
            if user is self._anonymous:
                raise _unauthorized(f"this needs a token of the role {needed.name.lower()}")
            raise forbidden(
                f"{user.name} has the role {user.role.name.lower()}; this needs {needed.name.lower()}"
            )
        if self._rate:
            address = request.client.host if request.client else ""
            self._count(address if user is self._anonymous else f"user {user.name}")
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
                f"more than {self._rate * 60:.0f} requests a minute: try again in {seconds} s",
                kind="rate_limit_error",
                code="rate_limit",
                headers={"Retry-After": str(seconds)},
            )
        self._left[caller] = left - 1, now
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)


def _token(request: Request) -> str | None:
    """From `Authorization: Bearer`, or `x-api-key`, which clients of Anthropic's API send."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key") or None


def _unauthorized(message: str) -> ApiError:
    return ApiError(
        401,
        f"{message}: send Authorization: Bearer TOKEN",
        kind="authentication_error",
        code="unauthorized",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _gate(request: Request) -> Gate:
    gate: Gate = request.app.state.gate
    return gate


def _runner(request: Request) -> User:
    return _gate(request).admit(request, Role.RUN)


def _uploader(request: Request) -> User:
    return _gate(request).admit(request, Role.UPLOAD)


#: parameters of routes: the user, who has this role at least
Runner = Annotated[User, Depends(_runner)]
Uploader = Annotated[User, Depends(_uploader)]
