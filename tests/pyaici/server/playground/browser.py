"""A real Chromium for tests of the page, and a watch on problems of the page."""

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

from lab.system.fetch import npm_file

#: names in distributions; Playwright's own download is not used, scripts/browser.sh fetches Debian's
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",  # the sandbox needs rights that containers lack; the browser opens only our own page
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # fewer processes, which take most of the time
    *("--in-process-gpu", "--renderer-process-limit=1", "--process-per-site"),
    # pages are open for moments: compiling their code well takes longer than it saves
    "--js-flags=--no-opt --max-lazy",
]
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields a browser. Without one, skips the test, or fails if AICI_BROWSER is set."""
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
    """Records errors of a page, and its requests to other hosts."""

    def __init__(self, page: Page, origin: str) -> None:
        self._host = urlsplit(origin).netloc
        self.problems: list[str] = []
        #: statuses that the test expects; browsers write each into the console
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
    """Returns role and name of all nodes of the browser's accessibility tree."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        {"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")}
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]


def violations(page: Page) -> list[str]:
    """Returns what axe finds on a page, with the elements: contrast, names, roles, and its other rules."""
    page.evaluate(npm_file("axe-core", "axe.min.js").read_text() + "\n;null")
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
