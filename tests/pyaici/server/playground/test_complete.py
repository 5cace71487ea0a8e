"""The tab "Complete": grey text, its keys, and the time of requests."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.pyaici.server.playground.browser import violations
from tests.pyaici.server.playground.page import Open
from tests.pyaici.server.serving import Serving


def _write(page: Page, text: str) -> Locator:
    """Replaces the code with key presses, like a user."""
    code = page.get_by_role("textbox", name="Code")
    code.press("Control+A")
    code.press("Delete")
    page.keyboard.insert_text(text[:-1])
    page.keyboard.type(text[-1])
    return code


def _complete(page: Page, server: Serving, text: str) -> tuple[Locator, dict[str, Any], dict[str, Any]]:
    """Completes a text. Returns the editor, the page's request, and the server's answer to that request."""
    page.get_by_role("tab", name="Complete").click()
    wanted = text.split()[-1]

    def is_it(request: Request) -> bool:
        return request.url.endswith("/cpc_stream") and (request.post_data_json or {}).get("prefix") == wanted

    with page.expect_request(is_it) as request:
        code = _write(page, text)
    body: Any = request.value.post_data_json
    with server.client() as client:
        answer = client.post("/cpc", json=body).json()
    expect(page.locator("#complete-state")).to_have_text("Tab accepts the grey text.")
    return code, body, answer


def _answer_no_more(page: Page) -> None:
    """Leaves later requests open: after an accepted completion the page asks for the next one."""
    page.route("**/cpc_stream", lambda route: None)


def test_tab_accepts_a_completion(open_page: Open, server: Serving) -> None:
    page = open_page()
    before = "def hello_world():\n    pri"
    code, body, answer = _complete(page, server, before)
    ghost = page.locator("#code .ghost")
    added = answer["suggestion"].removeprefix("pri")
    assert added and answer["suggestion"] == f"pri{added}"
    expect(ghost).to_have_text(added)
    assert body == {
        "context": "def hello_world():\n    ",
        "prefix": "pri",
        "sampler": "exact",
        "max_new_tokens": 16,
        "temperature": 0.2,
        "top_p": 0.95,
        "top_k": 0,
    }
    figures = page.locator("#completion-figures")
    for name, value in (
        ("sampler", "exact"),
        ("first byte", " ms"),
        ("tokens", str(answer["tokens_emitted"])),
    ):
        expect(figures.locator("div").filter(has_text=name)).to_contain_text(value)
    expect(figures.locator("div").filter(has_text="evaluations")).to_contain_text(re.compile(r"\d+$"))
    _answer_no_more(page)
    page.keyboard.press("Tab")
    expect(code).to_have_value(before + added)
    expect(ghost).to_have_count(0)
    expect(code).to_be_focused()
    page.keyboard.press("Control+Z")
    expect(code).to_have_value(before)


def test_completion_is_accepted_by_touch(open_page: Open, server: Serving) -> None:
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    before = "def hello_world():\n    pri"
    code, _, answer = _complete(page, server, before)
    button = page.get_by_role("button", name="Accept")
    _answer_no_more(page)
    button.tap()
    expect(code).to_have_value(before + answer["suggestion"].removeprefix("pri"))
    expect(code).to_be_focused()
    expect(page.locator("#code .ghost")).to_have_count(0)
    expect(button).to_be_hidden()


def test_complete_is_accessible(open_page: Open, server: Serving) -> None:
    page = open_page()
    _complete(page, server, "def hello_world():\n    pri")
    expect(page.locator("#code .ghost")).to_have_count(1)
    assert violations(page) == []


def test_shown_sampler_is_always_the_selected_one(open_page: Open, server: Serving) -> None:
    page = open_page()
    page.evaluate(
        "() => { window.samplers = new Set();"
        " const list = document.getElementById('completion-figures');"
        " const note = () => window.samplers.add(list.querySelector('dd').textContent);"
        " new MutationObserver(note).observe(list, { childList: true }); }"
    )
    _complete(page, server, "def hello_world():\n    pri")
    assert page.evaluate("[...window.samplers]") == ["exact"]


def test_escape_dismisses_a_completion_and_tab_then_leaves(open_page: Open, server: Serving) -> None:
    page = open_page()
    page.get_by_role("tab", name="Complete").click()
    page.get_by_label("sampler").select_option("heal")
    code, body, _ = _complete(page, server, "import ma")
    assert body["sampler"] == "heal"
    ghost = page.locator("#code .ghost")
    expect(ghost).to_have_count(1)
    page.keyboard.press("Escape")
    expect(ghost).to_have_count(0)
    expect(code).to_have_value("import ma")
    page.keyboard.press("Tab")
    expect(code).to_have_value("import ma")
    expect(code).not_to_be_focused()


def test_text_is_split_at_white_space_or_64_characters(open_page: Open) -> None:
    page = open_page()
    for before, prefix in [
        ("def f():\n    pri", "pri"),
        ("a b ", ""),
        ("pri", "pri"),
        ("x" + "😀" * 100, "😀" * 64),
    ]:
        script = (
            "(before) => import('/playground/complete_view.js').then((part) => part.splitAtCursor(before))"
        )
        context = before.removesuffix(prefix) if prefix else before
        assert page.evaluate(script, before) == {"context": context, "prefix": prefix}


def test_error_of_a_completion_is_shown(open_page: Open) -> None:
    page = open_page(expected={400})
    page.get_by_role("tab", name="Complete").click()
    page.get_by_label("max_new_tokens").fill("5000")
    _write(page, "import ma")
    expect(page.locator("#complete-error")).to_contain_text("max_new_tokens")


class HeldRequest:
    """Holds requests for completions back, so that the page cancels them before they are answered."""

    def __init__(self, page: Page, prefix: str) -> None:
        """Holds the requests with this prefix, and passes all others on."""
        self.prefixes: list[str] = []
        self._prefix = prefix
        self._held: list[Route] = []
        page.route("**/cpc_stream", self._take)

    def _take(self, route: Route) -> None:
        body: Any = route.request.post_data_json
        self.prefixes.append(body["prefix"])
        if body["prefix"] == self._prefix:
            self._held.append(route)
        else:
            route.continue_()

    def release(self) -> None:
        """Aborts the held requests."""
        for route in self._held:
            route.abort()


def test_request_follows_a_pause_and_the_next_key_cancels_it(open_page: Open) -> None:
    page = open_page()
    cancelled: list[str] = []
    page.on("requestfailed", lambda request: cancelled.append(json.loads(request.post_data or "")["prefix"]))
    held = HeldRequest(page, "prin")
    page.clock.install(time=0)
    page.clock.pause_at(10_000)
    page.get_by_role("tab", name="Complete").click()
    code = _write(page, "def hello_world():\n    pri")
    page.clock.run_for(50)
    code.press("n")
    page.clock.run_for(50)
    assert held.prefixes == []
    with page.expect_request("**/cpc_stream"):
        page.clock.run_for(50)
    code.press("t")
    with page.expect_request("**/cpc_stream"):
        page.clock.run_for(100)
    ghost = page.locator("#code .ghost")
    expect(ghost).to_have_count(1)
    assert cancelled == ["prin"]
    # in the middle of a line there is no grey text
    code.press("ArrowLeft")
    expect(ghost).to_have_count(0)
    code.press("x")
    page.clock.run_for(1000)
    assert held.prefixes == ["prin", "print"]
    held.release()
