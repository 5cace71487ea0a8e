"""Layout of the page: nothing is covered, and the latest result is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.pyaici.server.playground.page import Open, choose, lane, run
from tests.thorough import also


def _box(locator: Locator) -> tuple[float, float]:
    """Returns the top and bottom of an element in pixels of the window."""
    box = locator.bounding_box()
    assert box is not None
    return box["y"], box["y"] + box["height"]


def _is_on_top(locator: Locator) -> bool:
    """Tells whether a click at the middle of an element reaches it."""
    return bool(
        locator.evaluate(
            "(one) => { const { x, y, width, height } = one.getBoundingClientRect();"
            " return document.elementFromPoint(x + width / 2, y + height / 2) === one; }"
        )
    )


def test_prompt_is_visible_next_to_run_and_stop(open_page: Open) -> None:
    page = open_page(expected={400}, height=800)
    prompt = page.get_by_role("textbox", name="Prompt")
    button = page.get_by_role("button", name="Run")
    for _ in range(2):
        assert page.evaluate("scrollY") == 0
        assert _box(prompt)[1] < _box(button)[0] and _box(button)[1] < 800
        assert _is_on_top(prompt)
        # and again with an error message between the argument and the prompt
        choose(page, "regex", "(a|b")
        run(page, "failed")
        expect(page.locator("#argument-error")).to_be_visible()
    page.get_by_role("radio", name="Chat").check()
    for field in (page.get_by_role("textbox", name="Message").last, page.get_by_label("max_tokens")):
        field.focus()
        assert _box(field)[1] < _box(button)[0] and _is_on_top(field)


def test_list_of_controllers_shows_several_entries(open_page: Open) -> None:
    page = open_page(height=800)
    whole = page.locator("#controllers").evaluate(
        "(list) => { const { top, bottom } = list.getBoundingClientRect();"
        " return [...list.querySelectorAll('label')].map((one) => one.getBoundingClientRect())"
        "  .filter((box) => box.top >= top && box.bottom <= bottom).length; }"
    )
    assert whole >= 5


@pytest.mark.parametrize(("width", "height"), [(390, 844), *also((1280, 800))])
def test_reason_of_a_refused_upload_is_in_sight(
    open_page: Open, tokens: dict[str, str], tmp_path: Path, width: int, height: int
) -> None:
    page = open_page(expected={400}, width=width, height=height)
    page.get_by_text("Access token").click()
    page.get_by_role("textbox", name="Token").fill(tokens["ada"])
    page.get_by_role("button", name="Use", exact=True).click()
    page.get_by_label("max_tokens").focus()  # the fields have scrolled
    (tmp_path / "wrong.wasm").write_bytes(b"no module")
    page.get_by_label("Upload", exact=True).set_input_files(tmp_path / "wrong.wasm")
    news = page.locator("#upload-news")
    expect(news).to_contain_text("Uploading wrong.wasm failed")
    expect(news).to_be_in_viewport(ratio=1)
    assert _is_on_top(news)


def test_narrow_screen_scrolls_to_the_result_of_a_run(open_page: Open) -> None:
    page = open_page(expected={400}, width=390, height=844)
    choose(page, "regex", "[abc]{5000}")
    page.get_by_label("max_tokens").fill("4000")
    _not_covered(page)
    page.get_by_role("button", name="Run").click()
    expect(lane(page, 0).locator(".token.sampled").first).to_be_in_viewport()
    expect(page.locator("#run-state")).to_be_in_viewport()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-state")).to_have_text("Stopped.")
    # the error of the argument is shown next to it
    choose(page, "regex", "(a|b")
    run(page, "failed")
    expect(page.locator("#argument-error")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("textbox", name="Argument")).to_be_in_viewport(ratio=1)


def _not_covered(page: Page) -> None:
    """Asserts that each field is visible when it is reached by keys."""
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("textbox", name="Prompt").focus()
    for name in ("temperature", "top_p", "top_k", "seed", "max_tokens"):
        page.keyboard.press("Tab")
        field = page.get_by_role("spinbutton", name=name)
        expect(field).to_be_focused()
        assert _is_on_top(field), name


@pytest.mark.parametrize("width", [800, *also(1280, 1440)])
def test_figures_take_one_line_each(open_page: Open, width: int) -> None:
    page = open_page(width=width)
    page.evaluate(
        "async () => {"
        " const { Figures } = await import('/playground/figures.js');"
        " const figures = new Figures(document.getElementById('figures'));"
        " const usage = { sampled_tokens: 0, forced_tokens: 1, backtracked_tokens: 0, prompt_tokens: 4 };"
        " figures.begin();"
        " figures.update({ usage, timing: null, lanes: new Map() });"
        " usage.sampled_tokens = 99999;"
        " figures.update({ usage, timing: { seconds: 2, first_token_s: 0.7 }, lanes: new Map() }); }"
    )
    values = page.locator("#figures dd")
    expect(values.nth(1)).to_have_text("76.9K /s")
    assert values.evaluate_all("all => all.map((one) => one.scrollWidth > one.clientWidth)") == [False] * 8
    assert len(set(values.evaluate_all("all => all.map((one) => one.clientHeight)"))) == 1
