"""Routes of the playground: the page at `/`, and its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

from pyaici.server.http.errors import not_found

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).with_name("page")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Content from this server only, no inline scripts or styles, and no page may frame this one. Texts of
#: models, controllers and users reach the page, and none of them may run as code.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    # browsers revalidate files each time, so that none is out of date after an update of the server
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


#: all files, read once: requests are looked up here, so that no path of a request reaches the disk
_FILES = {path.name: _read(path) for path in sorted(_FOLDER.iterdir())}


@router.get("/")
async def page(request: Request) -> Response:
    """Returns the page."""
    return _file_response(request, _FILES["index.html"])


@router.get("/playground/{name}")
async def file(request: Request, name: str) -> Response:
    """Returns a file of the page."""
    if name not in _FILES:
        raise not_found(f"the playground has no file {name!r}")
    return _file_response(request, _FILES[name])


def _file_response(request: Request, found: _File) -> Response:
    headers = {**_HEADERS, "ETag": found.etag}
    known = request.headers.get("if-none-match", "")
    if found.etag in (etag.strip().removeprefix("W/") for etag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
