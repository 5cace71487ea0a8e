"""Inputs of a run: examples, links, the history, and copies as programs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from lab.system.waiting import PATIENCE
from tests.pyaici.server.playground.page import Open, choose, lane, run, written
from tests.pyaici.server.serving import Serving

_PROMPT = 'It\'s "$HOME" é\n😀 is'


def _body(page: Page) -> dict[str, Any]:
    """Runs, and returns the request of the page."""
    with page.expect_request("**/v1/run") as request:
        run(page)
    body: dict[str, Any] = json.loads(request.value.post_data or "")
    return body


def _copied(page: Page, name: str) -> str:
    page.get_by_role("group", name="Copy inputs as").get_by_role("button", name=name).click()
    expect(page.locator("#copy-news")).to_have_text("Copied.")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


@pytest.mark.parametrize("name", ["curl", "Python"])
def test_copied_program_repeats_the_run(open_page: Open, server: Serving, name: str) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    choose(page, "choice", '[" it\'s \\"red\\"", " grün"]')
    page.get_by_role("textbox", name="Prompt").fill(_PROMPT)
    run(page)
    program = _copied(page, name)
    command = ["bash", "-c", program] if name == "curl" else [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    expected = written(lane(page, 0))
    if name == "curl":
        (fork,) = json.loads(done.stdout)["forks"]
        assert fork["text"] == expected
    else:
        assert done.stdout == f"{expected}\n"


def test_copied_program_does_not_contain_the_token(open_page: Open, tokens: dict[str, str]) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("Access token").click()
    page.get_by_role("textbox", name="Token").fill(tokens["ada"])
    page.get_by_role("button", name="Use", exact=True).click()
    for name in ("curl", "Python", "link"):
        text = _copied(page, name)
        assert tokens["ada"] not in text
        assert ("AICI_TOKEN" in text) == (name != "link")


def test_link_fills_in_the_inputs_but_does_not_run_them(open_page: Open) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    choose(page, "Python script")
    page.get_by_label("argument (JSON)").fill('["a teapot"]')
    page.get_by_role("radio", name="Chat").check()
    page.get_by_role("textbox", name="Message").last.fill(_PROMPT)
    page.get_by_role("combobox", name="Role").last.select_option("assistant")
    page.get_by_label("seed").fill("7")
    page.get_by_label("max_tokens").fill("40")
    link = _copied(page, "link")
    body = _body(page)

    runs: list[str] = []
    other = open_page()
    other.on("request", lambda request: runs.append(request.url) if "/v1/run" in request.url else None)
    other.goto("about:blank")
    other.goto(link)
    expect(other.get_by_label("argument (JSON)")).to_have_value('["a teapot"]')
    expect(other.locator("#run-state")).to_have_text("Nothing has run yet.")
    assert runs == []
    assert _body(other) == body


def test_links_with_unusable_inputs_are_explained(open_page: Open) -> None:
    page = open_page("/#run?e30%")
    expect(page.locator("#run-error")).to_contain_text("cannot be read")
    inputs = page.evaluate("btoa(JSON.stringify({ controller: 'nobody.has.it' })).replace(/=+$/, '')")
    page = open_page(f"/#run?{inputs}")
    expect(page.locator("#run-error")).to_contain_text("no controller nobody.has.it")
    inputs = page.evaluate("btoa(JSON.stringify({ messages: [7, null] })).replace(/=+$/, '')")
    page = open_page(f"/#run?{inputs}")
    expect(page.locator("#run-error")).to_contain_text("These inputs cannot be used")
    page = open_page()
    page.get_by_role("textbox", name="Prompt").fill("long " * 4000)
    page.get_by_role("button", name="link").click()
    expect(page.locator("#copy-news")).to_have_text("Too long for a link.")


def test_earlier_runs_can_be_used_again(open_page: Open) -> None:
    page = open_page(expected={400})
    history = page.locator("#history")
    expect(history).to_be_hidden()
    choose(page, "choice", '["red", "green"]')
    body = _body(page)
    text = written(lane(page, 0))
    choose(page, "regex", "(a|b")
    run(page, "failed")
    page.reload()
    expect(history).to_contain_text("Earlier runs (2)")
    history.locator("summary").click()
    latest, first = history.locator("li button").all()
    expect(latest).to_contain_text("regex")
    expect(latest.locator(".status")).to_have_attribute("data-state", "failed")
    expect(first).to_contain_text(text)
    first.click()
    expect(page.get_by_role("radio", name="choice")).to_be_checked()
    assert _body(page) == body
    expect(history).to_contain_text("Earlier runs (3)")
    history.get_by_role("button", name="Clear").click()
    expect(history).to_be_hidden()
    assert page.evaluate("localStorage.length") == 0


def test_history_is_bounded(open_page: Open) -> None:
    page = open_page()
    shown = page.evaluate(
        "async () => {"
        " const { History } = await import('/playground/inputs.js');"
        " const history = new History(document.createElement('details'));"
        " for (let at = 0; at < 40; at++) {"
        "  history.add({ controller: 'none', prompt: `${at}` }, 's', 'done', 't'); }"
        " const short = JSON.parse(localStorage['aici-runs']).map(({ inputs }) => inputs.prompt);"
        " for (let at = 0; at < 4; at++) {"
        "  history.add({ controller: 'none', prompt: 'x'.repeat(200_000) }, 's', 'done', 't'); }"
        " return [short.length, short[0], localStorage['aici-runs'].length]; }"
    )
    assert shown[:2] == [30, "39"]
    assert 400_000 < shown[2] <= 500_000
    # another program has written something else there
    page.evaluate("localStorage['aici-runs'] = '{]'")
    page.reload()
    expect(page.locator("#history")).to_be_hidden()


def test_examples_run_by_one_click(open_page: Open) -> None:
    page = open_page()
    examples = page.get_by_role("region", name="Try one of these")
    expect(examples).to_be_in_viewport(ratio=1)
    names = examples.get_by_role("button").locator("b").all_text_contents()
    assert len(names) == 4
    for name in names:
        expect(examples).to_be_visible()
        examples.get_by_role("button", name=name).click()
        expect(page.locator("#run-state")).to_have_attribute("data-state", "done")
        assert written(lane(page, 0))
        expect(examples).to_be_hidden()
        page.reload()
