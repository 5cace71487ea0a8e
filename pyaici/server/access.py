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
        #: of who has no token
        self._role = Role[settings.role_without_token.upper()]
        self._rate = settings.requests_per_minute / 60
        #: requests that may come at once
        self._burst = max(1.0, settings.requests_per_minute / 6)
        #: by caller: how many requests they have left, and when that was
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, request: Request, needed: Role) -> User:
        """The user, if the role allows it and the pace too. Raises ApiError.

        Who is refused counts as well: with a wrong token as the address, which has no right one then.
        """
        token = _token(request)
        # clients of OpenAI's API always send one; without a file of users it means nothing
        known = self._users.find(token) if self._users and token is not None else None
        user = known or User(ANONYMOUS, self._role, request.client.host if request.client else "")
        if self._rate:
            self._count(user.caller)
        if known is None and self._users and token is not None:
            raise _unauthorized("this token is not known here")
        if self._users and token is None and "authorization" in request.headers:
            raise _unauthorized("this Authorization has no token")
        if user.role < needed:
            if known is None:
                raise _unauthorized(f"this needs a token of the role {needed.name.lower()}")
            raise forbidden(
                f"{user.name} has the role {user.role.name.lower()}; this needs {needed.name.lower()}"
            )
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


async def _runner(request: Request) -> User:
    return _gate(request).admit(request, Role.RUN)


async def _uploader(request: Request) -> User:
    return _gate(request).admit(request, Role.UPLOAD)


# async, so that they run one after the other: FastAPI calls others in threads, where two could count as one
#: parameters of routes: the user, who has this role at least
Runner = Annotated[User, Depends(_runner)]
Uploader = Annotated[User, Depends(_uploader)]
