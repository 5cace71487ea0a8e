"""Fixtures: a browser, and the page in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from lab.system.waiting import PATIENCE
from tests.pyaici.server.playground.browser import Watch, chromium
from tests.pyaici.server.playground.page import Open
from tests.pyaici.server.serving import Serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def server(exact_server: Serving) -> Serving:
    """Tests compare what the page shows with runs of their own."""
    return exact_server


@pytest.fixture
def open_page(browser: Browser, server: Serving) -> Iterator[Open]:
    """Opens the page as a new visitor. The page must have no errors, and no requests to other hosts."""
    watches: list[Watch] = []
    contexts = []

    def open_it(
        path: str = "/",
        expected: set[int] | None = None,
        width: int = 1280,
        height: int = 900,
        **options: Any,
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(1000 * PATIENCE)  # on a busy machine a page takes long to load
        contexts.append(context)
        page = context.new_page()
        watch = Watch(page, server.url)
        watch.expected = expected or set()
        watches.append(watch)
        page.goto(server.url + path)
        # the page loads the model's name last
        expect(page.locator("#model")).to_contain_text("SmolLM2")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert [problem for watch in watches for problem in watch.problems] == []
