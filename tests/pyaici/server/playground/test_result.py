"""The result of a run: figures, colours and their legend, and many forks."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Route, expect

from tests.pyaici.server.playground.page import Open, choose, lane, run
from tests.pyaici.server.serving import Serving


def test_legend_matches_the_colours(open_page: Open) -> None:
    page = open_page()
    legend = page.locator(".legend")
    unlikely, few = legend.get_by_text("unlikely"), legend.get_by_text("few allowed")
    expect(unlikely).to_be_visible()
    expect(few).to_be_hidden()
    page.get_by_role("radio", name="mask size").check()
    expect(unlikely).to_be_hidden()
    expect(few).to_be_visible()
    choose(page, "yesno")
    run(page)
    narrow = lane(page, 0).locator(".token.sampled").first
    colours = [
        one.evaluate("(one) => getComputedStyle(one).backgroundColor.match(/[0-9.]+/g).slice(0, 3).join()")
        for one in (few, narrow)
    ]
    assert colours[0] == colours[1]


def test_no_speed_is_shown_before_the_second_step(open_page: Open) -> None:
    page = open_page()
    shown = page.evaluate(
        "async () => {"
        " const { Figures } = await import('/playground/figures.js');"
        " const list = document.getElementById('figures');"
        " const figures = new Figures(list);"
        " const usage = { sampled_tokens: 0, forced_tokens: 4, backtracked_tokens: 0, prompt_tokens: 4 };"
        " const speeds = [];"
        " const update = (timing) => {"
        "  figures.update({ usage, timing, lanes: new Map() });"
        "  speeds.push(list.children[1].lastChild.textContent); };"
        " figures.begin();"
        " update(null);"
        " usage.sampled_tokens = 1; update(null);"
        " await new Promise((done) => setTimeout(done, 50));"
        " usage.sampled_tokens = 3; update(null);"
        " update({ seconds: 0.75, first_token_s: 0.25 });"
        " return speeds; }"
    )
    assert shown[:2] == ["–", "–"]
    assert shown[2].endswith(" /s")
    # three tokens in half a second; the four of the first step belong to the time before
    assert shown[3] == "6.0 /s"


def test_few_forks_are_shown_in_full(open_page: Open) -> None:
    page = open_page()
    choose(page, "showcase")
    run(page)
    prompt, first = lane(page, 0).locator(".token").all()[:2]
    end, start = prompt.bounding_box(), first.bounding_box()
    assert end is not None and start is not None
    assert end["x"] + end["width"] + 3 <= start["x"]
    expect(prompt).not_to_have_css("border-right-width", "0px")
    expect(first).to_have_css("border-right-width", "0px")
    expect(page.locator(".lane")).to_have_count(3)
    expect(page.locator(".lane.folded")).to_have_count(0)
    expect(page.get_by_role("heading", name="Fork 1").get_by_role("button")).to_have_count(0)


def test_many_forks_are_folded_except_the_longest_lived(open_page: Open) -> None:
    page = open_page()
    choose(page, "beam", "3 9")
    page.get_by_role("textbox", name="Prompt").fill("Once upon a time")
    run(page)
    lanes = page.locator(".lane")
    folded = page.locator(".lane.folded")
    assert lanes.count() > 4 and 0 < lanes.count() - folded.count() <= 3
    tree = page.get_by_role("group", name="Map of the forks")
    assert tree.get_by_role("button").count() == lanes.count()
    heights = folded.evaluate_all("all => all.map((one) => one.offsetHeight)")
    assert max(heights) < 45
    cut = folded.filter(has=page.locator(".token.shared:not(.taken) .early")).first
    expect(cut.locator(".early").first).to_be_hidden()
    expect(cut.locator(".token.prompt").first).to_be_hidden()
    before = cut.locator(".token.shared:has(.early)").first
    assert before.evaluate("(one) => getComputedStyle(one, '::before').content") == '"…"'

    name = str(cut.get_by_role("heading").text_content())
    one = page.locator(".lane").filter(has=page.get_by_role("heading", name=name, exact=True))
    button = one.get_by_role("button")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    button.press("Enter")
    tree.get_by_role("button", name=re.compile(rf"{name}, from fork \d+, \d+ tokens: stopped")).click()
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(button).to_be_focused()
    expect(one.locator(".token.prompt")).to_be_visible()
    expect(one.locator(".log")).to_be_visible()
    button.press("Enter")
    expect(one.locator(".log")).to_be_hidden()
    # anywhere on the card
    one.click(position={"x": 4, "y": 4})
    expect(button).to_have_attribute("aria-expanded", "true")


def test_long_and_binary_variables_are_folded(open_page: Open) -> None:
    page = open_page()
    page.evaluate(
        "async () => {"
        " const { Variables } = await import('/playground/figures.js');"
        " window.variables = new Variables(document.getElementById('variables'));"
        " variables.show({ short: 'a\\nb', long: 'x'.repeat(300), lines: 'y\\n'.repeat(9),"
        "  binary: { base64: '/////w==' } }); }"
    )
    box = page.get_by_role("region", name="Variables")
    rows = {str(row.locator("dt").text_content()): row.locator("dd") for row in box.locator("dl > div").all()}
    expect(rows["short"]).to_have_text("a\nb")
    expect(rows["short"].locator("details")).to_have_count(0)
    for name, summary, text in [
        ("long", "(300 characters)", "x" * 300),
        ("lines", "(18 characters, 10 lines)", "y\n" * 9),
        ("binary", "binary, 4 bytes", "/////w=="),
    ]:
        expect(rows[name].locator("summary")).to_contain_text(summary)
        expect(rows[name].locator("pre")).to_be_hidden()
        assert rows[name].locator("pre").text_content() == text
    rows["long"].locator("summary").click()
    expect(rows["long"].locator("pre")).to_be_visible()
    # a new value leaves it open
    page.evaluate("variables.show({ long: 'z'.repeat(300) })")
    expect(rows["long"].locator("pre")).to_have_text("z" * 300)
    expect(rows["long"].locator("pre")).to_be_visible()


CALLING = """
from aici import *
async def main():
    await call("aici.calls")
    try:
        await call("weather", city="Oslo")
    except CallError as error:
        print(error.code)
    await call("slow")
"""


def test_calls_are_listed_with_time_and_outcome(open_page: Open, server: Serving) -> None:
    """The page offers no calls itself: the test adds an offer to its request, and stops while one waits."""
    page = open_page()

    def offer(route: Route) -> None:
        body = {**route.request.post_data_json, "calls": [{"name": "slow"}]}
        route.continue_(post_data=json.dumps(body))

    page.route("**/v1/run", offer)
    choose(page, "Python")
    page.get_by_role("textbox", name="Script").fill(CALLING)
    page.get_by_role("button", name="Run").click()
    calls = page.get_by_role("region", name="Calls")
    expect(calls.locator("dt")).to_have_text(["aici.calls", "weather", "slow"])
    outcomes = calls.locator("dd p")
    expect(outcomes.nth(2)).to_have_text("waits for the client")
    expect(outcomes.nth(0)).to_have_text(re.compile(r"^answered after [\d.]+ ms, \d+ bytes$"))
    expect(outcomes.nth(1)).to_have_text(re.compile(r"^unknown_call after [\d.]+ ms, \d+ bytes$"))
    expect(calls.locator("dd").nth(1)).to_contain_text('{"city": "Oslo"}')
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-state")).to_have_attribute("data-state", "stopped")
    server.wait_for("call slow for .*: cancelled in")


def test_times_of_steps_are_plotted(open_page: Open) -> None:
    page = open_page()
    choose(page, "regex", "[0-9]{12}")
    run(page)
    plot = page.get_by_role("img", name="Time of")
    expect(plot).to_have_accessible_name(
        re.compile(
            r"Time of \d+ steps: median .* ms, of which controllers and masks took .* ms; longest .* ms"
        )
    )
    steps = plot.locator(".bar-step").count()
    assert steps >= lane(page, 0).locator(".token.sampled").count() > 1
    assert plot.locator(".bar-control").count() == steps
    # an engine that does not measure the controllers' part, and more steps than there is room for
    page.evaluate(
        "async () => {"
        " const { Timeline } = await import('/playground/figures.js');"
        " const byId = (id) => document.getElementById(id);"
        " new Timeline(byId('timeline'), byId('timeline-caption'))"
        "  .show(Array.from({ length: 300 }, (_, at) => ({ step: at / 1000, control: null }))); }"
    )
    expect(plot).to_have_count(1)
    expect(plot).to_have_accessible_name("Time of the last 160 of 300 steps: median 150 ms; longest 299 ms")
    assert (plot.locator(".bar-step").count(), plot.locator(".bar-control").count()) == (160, 0)
