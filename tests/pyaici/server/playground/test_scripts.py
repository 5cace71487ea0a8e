"""Scripts in the tab "Run": editor, argument, and marked errors."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.pyaici.server.playground.page import Open, choose, lane, run, written
from tests.thorough import also


@pytest.mark.parametrize("language", ["Python", *also("JavaScript")])
def test_script_runs_with_its_argument(open_page: Open, language: str) -> None:
    page = open_page()
    choose(page, f"{language} script")
    page.get_by_label("argument (JSON)").fill('["a teapot"]')
    with page.expect_request("**/v1/run") as request:
        run(page)
    sent = json.loads(request.value.post_data or "")
    assert sent["script"]["language"] == language.lower() and "controller" not in sent
    text = written(lane(page, 0))
    assert text.startswith(" was born in 1") and text.endswith(" and is known as a teapot")
    expect(page.get_by_role("region", name="Variables")).to_contain_text("a teapot")


def test_each_language_keeps_its_text_and_tab_indents(open_page: Open) -> None:
    page = open_page()
    choose(page, "Python script")
    script, arg = page.get_by_role("textbox", name="Script"), page.get_by_label("argument (JSON)")
    script.fill("x = 1")
    script.press("End")
    script.press("Tab")
    expect(script).to_have_value("x = 1    ")
    arg.fill("7")
    choose(page, "JavaScript script")
    expect(script).to_have_value(re.compile("export async function main"))
    expect(arg).to_have_value("")
    choose(page, "json_schema")
    expect(arg).to_be_hidden()
    expect(page.get_by_role("textbox", name="Argument")).to_be_visible()
    choose(page, "Python script")
    expect(script).to_have_value("x = 1    ")
    expect(arg).to_have_value("7")
    script.press("Escape")
    script.press("Tab")
    expect(arg).to_be_focused()
    page.get_by_role("button", name="Use example").click()
    assert "async def main" in script.input_value()


def test_place_where_a_script_fails_is_marked(open_page: Open) -> None:
    page = open_page(expected={400})
    script = page.get_by_role("textbox", name="Script")
    mark, number = page.locator("#argument mark"), page.locator("#argument .gutter .wrong")
    for language, refused, fails in [
        ("Python", "x = 1\nnothing()\n", "async def main():\n    x = 1\n    nothing()\n"),
        (
            "JavaScript",
            "let x = 1;\nnothing();\n",
            "export async function main() {\n  let x = 1;\n  nothing();\n}\n",
        ),
    ]:
        marked = "nothing()" if language == "Python" else "nothing"
        choose(page, f"{language} script")
        script.fill(refused)
        run(page, "failed")
        expect(page.locator("#run-state")).to_have_text("The script is refused.")
        expect(page.locator("#argument-error")).to_contain_text("nothing")
        expect(number).to_have_text("2")
        expect(mark).to_have_text(marked)
        script.fill(fails)
        run(page, "failed")
        expect(lane(page, 0).locator(".error")).to_contain_text("nothing")
        assert len(str(lane(page, 0).locator(".error").text_content()).splitlines()) > 1
        expect(number).to_have_text("3")
        expect(mark).to_have_text(marked)


def test_argument_that_is_not_json_is_refused_by_the_page(open_page: Open) -> None:
    page = open_page()
    choose(page, "Python script")
    arg = page.get_by_label("argument (JSON)")
    arg.fill("[1,")
    run(page, "failed")
    expect(page.locator("#argument-error")).to_contain_text("the argument is not JSON")
    expect(arg).to_have_attribute("aria-invalid", "true")
    arg.fill("[1]")
    expect(page.locator("#argument-error")).to_be_hidden()
