"""A real Chromium that looks at the page, and notes what a page must not do."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

#: as distributions call it; Playwright's own download is not used: scripts/browser.sh brings Debian's
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",  # which needs rights that containers lack; it opens nothing but our own page
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Skips the test where there is none, unless AICI_BROWSER says that there must be one."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        cure = 'no Chromium on PATH: install the package chromium, or PATH="$(scripts/browser.sh)$PATH"'
        if os.environ.get("AICI_BROWSER"):
            pytest.fail(cure)
        pytest.skip(cure)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=_ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """What a page has asked for and complained about."""

    def __init__(self, page: Page, origin: str) -> None:
        self._host = urlsplit(origin).netloc
        self.problems: list[str] = []
        #: statuses that the test brings about; browsers write each into the console
        self.expected: set[int] = set()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        refused = _REFUSED.match(message.text)
        if refused is None or int(refused[1]) not in self.expected:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.problems.append(f"a request to another host: {request.url}")


def accessible_nodes(page: Page) -> list[dict[str, Any]]:
    """Role and name of everything that assistive technology is told of, as the browser finds them."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        {"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")}
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]
