"""Actions on the page, and texts that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from lab.system.waiting import PATIENCE

#: opens the page: see the fixture `open_page`
Open = Callable[..., Page]
#: the first request of a kind may compile a controller, beside other work of the machine
expect.set_options(timeout=1000 * PATIENCE)


def choose(page: Page, controller: str, arg: str | None = None) -> None:
    page.get_by_role("radio", name=re.compile(rf"^{controller}\b")).check()
    if arg is not None:
        page.get_by_role("textbox", name="Argument").fill(arg)


def run(page: Page, state: str = "done") -> None:
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#run-state")).to_have_attribute("data-state", state)


def lane(page: Page, fork: int) -> Locator:
    return page.locator(".lane").filter(has=page.get_by_role("heading", name=f"Fork {fork}", exact=True))


def written(lane: Locator) -> str:
    """Returns the shown text of a fork, without the prompt and backtracked tokens."""
    texts = lane.locator(".token:not(.prompt, .taken, .empty)").all_text_contents()
    return "".join(texts).replace("⏎\n", "\n")
