"""The tab "Run": texts, tokens, forks, stopping, and errors."""

from __future__ import annotations

import json
import math
import random
import re
import time
from typing import Any, cast

from playwright.sync_api import expect

from lab.system.waiting import PATIENCE
from pyaici.bundled import DESCRIPTIONS
from pyaici.engines.engine import Backtracked, Event, Forked, Origin, Started, TokensAppended
from pyaici.server.apis.run.report import RunReport
from pyaici.server.models import ServedModel
from tests.pyaici.server.playground.page import Open, choose, lane, run, written
from tests.pyaici.server.serving import Serving


def test_run_shows_its_text_and_details_of_each_token(open_page: Open, server: Serving) -> None:
    page = open_page()
    choose(page, "json_schema")
    page.get_by_role("textbox", name="Prompt").fill("The weather:")
    page.get_by_label("max_tokens").fill("60")
    argument = page.get_by_role("textbox", name="Argument")
    assert json.loads(argument.input_value()) == json.loads(str(DESCRIPTIONS["json_schema"][1]))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"temperature_in_celsius": {"type": "integer", "maximum": 99}},
    }
    schema |= {"required": ["temperature_in_celsius"], "additionalProperties": False}
    argument.fill(json.dumps(schema))
    run(page)
    body: dict[str, Any] = {
        "controller": "json_schema",
        "controller_arg": schema,
        "prompt": "The weather:",
        "max_tokens": 60,
    }
    events = server.events(**body, details=True, top_logprobs=5)
    assert written(lane(page, 0)) == events[-1]["forks"][0]["text"]
    expect(lane(page, 0).locator(".chip")).to_have_text("stopped by its controller")

    pieces = [piece for step in events[1:-1] for fork in step["forks"] for piece in fork["pieces"]]
    forced = [piece["text"] for piece in pieces if piece["origin"] == "forced"]
    assert lane(page, 0).locator(".token.forced").all_text_contents() == forced and forced
    sampled = [piece for piece in pieces if piece["origin"] == "sampled"]
    views = lane(page, 0).locator(".token.sampled")
    expect(views).to_have_count(len(sampled))
    views.nth(1).click()
    details = page.get_by_role("complementary", name="Token")
    expect(details).to_contain_text(f"{sampled[1]['allowed']:,} of 49,152 tokens allowed")
    percent = page.evaluate(
        "chance => (chance < 0.0005 ? (100 * chance).toExponential(1) : (100 * chance).toFixed(1)) + ' %'",
        math.exp(sampled[1]["logprobs"][0]),
    )
    expect(details).to_contain_text(percent)
    expect(details.get_by_role("listitem")).to_have_count(5)
    expect(details.get_by_role("listitem").first).to_contain_text(
        sampled[1]["top_logprobs"][0][0]["text"].strip()
    )
    # less likely tokens have a stronger background
    strengths = views.evaluate_all("all => all.map(one => Number(one.style.getPropertyValue('--surprise')))")
    by_chance = sorted(zip(strengths, (-piece["logprobs"][0] for piece in sampled), strict=True))
    assert [chance for _, chance in by_chance] == sorted(chance for _, chance in by_chance)

    figures = page.locator("#figures")
    assert "sampled" in str(figures.text_content())
    for name, value in (("sampled", len(sampled)), ("forced", events[-1]["usage"]["forced_tokens"])):
        expect(figures.locator("div").filter(has=page.get_by_text(name, exact=True))).to_contain_text(
            str(value)
        )
    expect(figures.locator("div").filter(has_text="speed")).to_contain_text(re.compile(r"\d /s"))
    expect(figures.locator("div").filter(has_text="first token")).to_contain_text(re.compile(r"\d m?s"))


def test_arrow_keys_move_between_tokens(open_page: Open) -> None:
    page = open_page()
    choose(page, "choice", '["red as a rose", "green"]')
    run(page)
    tokens = lane(page, 0).get_by_role("option")
    tokens.first.focus()
    details = page.get_by_role("complementary", name="Token")
    for number in range(1, tokens.count()):
        page.keyboard.press("ArrowRight")
        expect(tokens.nth(number)).to_be_focused()
        expect(tokens.nth(number)).to_have_attribute("aria-selected", "true")
        expect(details.get_by_role("heading")).to_contain_text(str(tokens.nth(number).text_content()).strip())
    page.keyboard.press("ArrowLeft")
    expect(tokens.nth(tokens.count() - 2)).to_be_focused()


def test_forks_are_shown_as_a_tree_of_lanes(open_page: Open, server: Serving) -> None:
    page = open_page()
    choose(page, "showcase")
    page.get_by_role("textbox", name="Prompt").fill("Hello")
    page.get_by_label("seed").fill("5")
    run(page)
    forks = server.run(controller="showcase", prompt="Hello", seed=5, max_tokens=100)["forks"]
    assert len(forks) == 3
    for fork in forks:
        shown = lane(page, fork["index"])
        assert written(shown) == fork["text"]
        shown.locator("summary").click()
        log = str(shown.locator(".log pre").text_content())
        # sequence numbers count all runs of a server
        assert re.sub(r"sequence \d+", "", log) == re.sub(r"sequence \d+", "", fork["log"])
        parent = fork["parent"]
        expected = page.locator(".tree > li" if parent is None else ".tree > li > .children > li")
        expect(expected.filter(has=page.get_by_role("heading", name=f"Fork {fork['index']}"))).to_have_count(
            1
        )
        if parent is not None:
            expect(shown).to_contain_text(f"from fork {parent}")
            expect(shown.locator(".token.shared")).not_to_be_empty()
    taken = lane(page, 0).locator(".token.taken")
    expect(taken.first).to_have_css("text-decoration-line", "line-through")
    expect(page.get_by_role("region", name="Variables")).to_contain_text("votes")


def test_page_and_server_agree_on_the_texts_of_forks(open_page: Open) -> None:
    """Random histories with forks and backtracking, also beyond a fork and into the prompt."""
    page = open_page()
    histories = [_history(random.Random(number)) for number in range(150)]
    shown = page.evaluate(
        "async (histories) => {"
        " const { Transcript } = await import('/playground/transcript.js');"
        " return histories.map((steps) => {"
        "  const transcript = new Transcript();"
        "  steps.forEach((step) => transcript.take(step));"
        "  return [...transcript.lanes.values()].sort((one, other) => one.index - other.index)"
        "   .map(({ pieces }) => pieces.filter(({ taken, kind }) => !taken && kind !== 'prompt')"
        "    .map(({ text }) => text).join('')); }); }",
        [steps for steps, _ in histories],
    )
    assert shown == [texts for _, texts in histories]
    assert sum(len(texts) > 1 for texts in shown) > 50


def _history(random: random.Random) -> tuple[list[Any], list[str]]:
    """Returns steps of `POST /v1/run`, and the final text of each fork."""
    report = RunReport(cast(ServedModel, None))  # the model is needed only for the texts of likely tokens
    #: tokens of each sequence, including those of the prompt
    tokens = {0: ["two ", "words "]}
    begun: list[Event] = [Started(0, 0, [1, 2], "two words ")]
    steps = [report.step(begun)]
    texts = {0: ""}
    for _ in range(random.randint(1, 8)):
        events: list[Event] = []
        for seq in list(tokens):
            for _ in range(random.randint(0, 3)):
                match random.choice(["sample", "force", "back", "fork"]):
                    case "back":
                        count = random.randint(1, 4)
                        gone = tokens[seq][max(0, len(tokens[seq]) - count) :]
                        del tokens[seq][len(tokens[seq]) - len(gone) :]
                        removed = "".join(gone)
                        texts[seq] = texts[seq][: max(0, len(texts[seq]) - len(removed))]
                        events.append(Backtracked(0, seq, len(gone), removed))
                    case "fork" if len(tokens) < 5:
                        child = len(tokens)
                        tokens[child], texts[child] = tokens[seq][:], texts[seq]
                        events.append(Forked(0, seq, [child], by_engine=False))
                    case kind:
                        new = [random.choice(["a", "bc", "def "]) for _ in range(random.randint(2, 3))]
                        new = new if kind == "force" else new[:1]
                        tokens[seq] += new
                        texts[seq] += "".join(new)
                        origin = Origin.FORCED if kind == "force" else Origin.SAMPLED
                        events.append(TokensAppended(0, seq, [7] * len(new), "".join(new), origin))
        steps.append(report.step(events))
    return json.loads(json.dumps(steps)), [texts[seq] for seq in sorted(texts)]


def test_error_of_a_controller_is_shown_in_its_lane(open_page: Open) -> None:
    page = open_page()
    choose(page, "guest", "mid_trap")
    run(page, "failed")
    expect(page.locator("#run-state")).to_contain_text("Failed")
    bad, muted = (page.evaluate(_COLOUR, name) for name in ("--bad", "--muted"))
    assert bad != muted
    expect(page.locator("#run-state")).to_have_css("color", bad)
    expect(lane(page, 0).locator(".chip")).to_have_text("failed")
    expect(lane(page, 0).locator(".error")).to_contain_text("trap")


#: a colour of the theme as browsers report it
_COLOUR = """
(name) => {
  const box = document.body.appendChild(document.createElement('p'));
  box.style.setProperty('color', `var(${name})`);
  const colour = getComputedStyle(box).color;
  box.remove();
  return colour;
}
"""


def test_error_in_the_middle_of_a_stream_is_shown(open_page: Open) -> None:
    page = open_page()
    events: list[dict[str, Any]] = [
        {"object": "initial-run", "vocab_size": 9},
        {
            "object": "run",
            "forks": [{"index": 0, "text": "ab", "pieces": [], "prompt": "x"}],
            "usage": {"prompt_tokens": 1, "sampled_tokens": 0, "forced_tokens": 0, "backtracked_tokens": 0},
        },
        {"object": "error", "error": {"message": "the engine has failed", "code": "engine"}},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    page.route("**/v1/run", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    run(page, "failed")
    expect(page.locator("#run-error")).to_have_text("the engine has failed")
    expect(lane(page, 0).locator(".chip")).to_have_text("interrupted")


def test_chat_prompt(open_page: Open, server: Serving) -> None:
    page = open_page()
    choose(page, "yesno")
    page.get_by_role("radio", name="Chat").check()
    page.get_by_role("button", name="Remove message").first.click()
    page.get_by_role("textbox", name="Message").fill("Is the sky blue?")
    run(page)
    messages = [{"role": "user", "content": "Is the sky blue?"}]
    answer = server.run(controller="yesno", messages=messages)
    assert written(lane(page, 0)) == answer["forks"][0]["text"]


def test_stop_also_ends_the_run_on_the_server(open_page: Open, server: Serving) -> None:
    page = open_page()
    choose(page, "regex", "[abc]{5000}")
    page.get_by_label("max_tokens").fill("4000")
    for key in (True, False):
        page.get_by_role("textbox", name="Prompt").press("Control+Enter")
        expect(lane(page, 0).locator(".token.sampled").nth(3)).to_be_visible()
        assert _live(server) == 1
        # only one run at a time, also by keys; the button can keep the focus
        expect(page.get_by_role("button", name="Run")).to_be_disabled()
        page.keyboard.press("Control+Enter")
        assert _live(server) == 1
        if key:
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Stop").click()
        expect(page.locator("#run-state")).to_have_text("Stopped.")
        expect(lane(page, 0).locator(".chip")).to_have_text("stopped")
        expect(page.get_by_role("button", name="Run")).to_be_enabled()
        deadline = time.monotonic() + PATIENCE
        while _live(server) > 0:
            assert time.monotonic() < deadline, "the server still generates"
            time.sleep(0.05)


def _live(server: Serving) -> float:
    return sum(value for name, value in server.metrics().items() if name.startswith("aici_live_requests"))


def test_error_in_an_argument_is_marked_at_its_place(open_page: Open) -> None:
    page = open_page(expected={400})
    field = page.get_by_role("textbox", name="Argument")
    for controller, arg, line, marked in [
        ("lark", 'start: NAME "is" INT\nNAME: /[A-Z][a-z]+/\nINT: ]\n', 3, "]"),
        ("regex", "é(b", 1, "("),
        ("json_schema", '{\n "properties": {\n  "a": {"type": "text"}}}', 3, '"text"'),
        ("choice", '["é", oh]', 1, "oh"),
    ]:
        choose(page, controller, arg)
        run(page, "failed")
        expect(page.locator("#argument-error")).to_be_visible()
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#argument .gutter .wrong")).to_have_text(str(line))
        expect(page.locator("#argument mark")).to_have_text(marked)
        assert page.locator("#argument .paper").text_content() == arg
        field.press("End")
        field.type(" ")
        expect(page.locator("#argument mark")).to_have_count(0)
        expect(field).to_have_attribute("aria-invalid", "false")
        expect(page.locator("#argument-error")).to_be_hidden()


def test_note_says_whether_a_controller_takes_an_argument(open_page: Open) -> None:
    page = open_page()
    field, note = page.get_by_role("textbox", name="Argument"), page.locator("#argument-note")
    for controller, note_text, placeholder in [
        ("showcase", "showcase takes no argument.", ""),
        ("choice", "", ""),
        ("guest", "", "optional"),
        ("none", "Without a controller there is no argument.", ""),
    ]:
        choose(page, controller)
        expect(note).to_have_text(note_text)
        expect(note).to_be_visible(visible=note_text != "")
        expect(field).to_have_attribute("placeholder", placeholder)
        expect(field).to_have_accessible_description(note_text)


def test_places_of_errors_are_found_in_messages(open_page: Open) -> None:
    page = open_page()
    json_text = '{"a/b": [1, {"x": "}"}], "é": {"~": 7}}'
    for message, text, found in [
        ("line 2, column 3: no", "ab\ncdefg\n", "efg"),
        ("refused at column 3: no", "😀😀(", "("),
        ("line 2: no", "ab\ncd", "cd"),
        ("line 9, column 9: no", "ab", ""),
        ("expected at byte 4", '"é"x', "x"),
        ("refused\n#/a~1b/1/x: no", json_text, '"}"'),
        ("refused\n#/é/~0: no", json_text, "7"),
        ("refused\n#/a~1b/5: no", json_text, "["),
    ]:
        place = page.evaluate(
            "async ([message, text]) => {"
            " const { findPlace } = await import('/playground/argument.js');"
            " const { from, to } = findPlace(message, text);"
            " return text.slice(from, to); }",
            [message, text],
        )
        assert place == found, message
    script = "import('/playground/argument.js').then((part) => part.findPlace('it is wrong', 'abc'))"
    assert page.evaluate(script) is None


def test_other_errors_are_shown(open_page: Open) -> None:
    page = open_page(expected={400})
    choose(page, "none")
    page.get_by_label("max_tokens").fill("99999")
    run(page, "failed")
    expect(page.locator("#run-error")).to_contain_text("this server allows 4096")
