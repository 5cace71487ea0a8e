"""The page itself: files, access tokens, uploads, and accessibility."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import pyaici.server.playground
from pyaici.bundled import bundled_controllers
from tests.pyaici.server.playground.browser import accessible_nodes, violations
from tests.pyaici.server.playground.page import Open, choose, lane, run, written
from tests.pyaici.server.serving import Serving
from tests.thorough import also

FOLDER = Path(pyaici.server.playground.__file__).parent / "page"


def test_files_have_types_and_a_strict_policy(server: Serving) -> None:
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    with server.client() as client:
        assert client.get("/").content == (FOLDER / "index.html").read_bytes()
        for path in FOLDER.iterdir():
            answer = client.get(f"/playground/{path.name}")
            assert answer.content == path.read_bytes()
            assert answer.headers["content-type"].startswith(types[path.suffix])
            assert answer.headers["x-content-type-options"] == "nosniff"
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy and "unsafe" not in policy
            again = client.get(f"/playground/{path.name}", headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304 and again.content == b""
        for name in ("routes.py", "..%2froutes.py", "nothing.js"):
            assert client.get(f"/playground/{name}").status_code == 404


def test_files_contain_no_other_host_and_no_inline_code() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]", text), path.name
        assert not re.search(r"\binnerHTML\b|\beval\(|\son[a-z]+=|style=", text), path.name


def test_upload_needs_a_token_and_is_selected_at_once(
    open_page: Open, server: Serving, tokens: dict[str, str], tmp_path: Path
) -> None:
    name = b"from the playground"
    wasm = bundled_controllers()["yesno"].read_bytes() + bytes([0, 1 + len(name), len(name)]) + name
    file = tmp_path / "mine.wasm"
    file.write_bytes(wasm)
    page = open_page(expected={401, 403})
    news = page.locator("#upload-news")
    page.get_by_label("Upload", exact=True).set_input_files(file)
    expect(news).to_contain_text("needs a token with the role upload")
    token = page.get_by_role("textbox", name="Token")
    expect(token).to_be_focused()
    expect(page.locator("#access-reason")).to_contain_text("needs a token with the role upload")
    expect(page.locator("#access-reason")).to_be_in_viewport(ratio=1)
    token.fill(tokens["eve"])
    token.press("Enter")
    page.get_by_label("Upload", exact=True).set_input_files(file)
    expect(news).to_contain_text("eve has the role run; this request needs the role upload")
    page.get_by_text("Access token").click()
    token.fill(tokens["ada"])
    token.press("Enter")
    page.get_by_label("as", exact=True).fill("from.page")
    page.get_by_label("Upload", exact=True).set_input_files(file)
    expect(news).to_have_text("Uploaded mine.wasm as from.page.")
    with server.client(tokens["root"]) as root:
        assert root.get("/v1/controllers/from.page").json()["owners"] == ["ada"]
        expect(page.get_by_role("radio", name="from.page")).to_be_checked()
        run(page)
        page.reload()
        expect(page.get_by_role("radio", name="from.page")).to_be_visible()
        assert tokens["ada"] not in page.evaluate("JSON.stringify({ ...localStorage })")
        assert root.delete("/v1/tags/from.page").status_code == 200


def test_uploaded_script_is_a_controller(
    open_page: Open, server: Serving, tokens: dict[str, str], tmp_path: Path
) -> None:
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    wrong.write_text("async def main(:")
    right.write_text("from aici import *\nasync def main():\n    await force(f'<{arg}>')\n")
    page = open_page(expected={400})
    page.get_by_text("Access token").click()
    page.get_by_role("textbox", name="Token").fill(tokens["ada"])
    page.get_by_role("button", name="Use", exact=True).click()
    page.get_by_label("as", exact=True).fill("script.of.page")
    page.get_by_label("Upload", exact=True).set_input_files(wrong)
    refused = re.compile(r"Uploading wrong\.py failed: .*SyntaxError", re.DOTALL)
    # the interpreter may have to be compiled first
    expect(page.locator("#upload-news")).to_have_text(refused)
    page.get_by_label("Upload", exact=True).set_input_files(right)
    expect(page.locator("#upload-news")).to_have_text("Uploaded right.py as script.of.page.")
    chosen = page.get_by_role("radio", name="script.of.page")
    expect(chosen).to_be_checked()
    expect(page.get_by_text("right.py, a script in python")).to_be_visible()
    page.locator("#argument").get_by_role("textbox").fill('"Ann"')
    run(page)
    assert written(lane(page, 0)) == "<Ann>"
    with server.client(tokens["ada"]) as ada:
        found = ada.get("/v1/controllers/script.of.page").json()
        assert (found["language"], found["script"]) == ("python", "right.py")
        assert ada.delete("/v1/tags/script.of.page").status_code == 200


def test_wrong_token_is_reported(open_page: Open) -> None:
    page = open_page(expected={401})
    page.get_by_text("Access token").click()
    page.get_by_role("textbox", name="Token").fill("nonsense")
    page.get_by_role("button", name="Use", exact=True).click()
    expect(page.locator("#run-error")).to_contain_text("the token is unknown")


# axe finds most missing names, in test_page_fits_and_is_accessible and in test_complete_is_accessible
@pytest.mark.thorough
@pytest.mark.parametrize("tab", ["Run", "Complete"])
def test_all_elements_have_accessible_names(open_page: Open, tab: str) -> None:
    page = open_page()
    page.get_by_role("tab", name="Run").focus()
    if tab == "Complete":
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
    if tab == "Run":
        choose(page, "choice", '["red", "green"]')
        page.get_by_role("radio", name="Chat").check()
        run(page)
    needed = {
        "button",
        "textbox",
        "radio",
        "spinbutton",
        "combobox",
        "tab",
        "tabpanel",
        "listbox",
        "option",
        "group",
    }
    nodes = accessible_nodes(page)
    assert [node for node in nodes if node["role"] in needed and not node["name"]] == []
    kinds = {"button", "listbox"} if tab == "Run" else {"combobox"}
    assert {"textbox", "spinbutton", "tab", *kinds} <= {node["role"] for node in nodes}
    assert page.evaluate("document.documentElement.lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    references = page.evaluate(
        "[...document.querySelectorAll('[aria-labelledby],[aria-describedby],[aria-controls],[for]')]"
        ".flatMap((one) => ['aria-labelledby','aria-describedby','aria-controls','for']"
        ".flatMap((name) => (one.getAttribute(name) ?? '').split(' ')).filter(Boolean))"
    )
    assert set(references) <= set(ids)


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), *also((1000, "light"))])
def test_page_fits_and_is_accessible(open_page: Open, width: int, scheme: str) -> None:
    # the colours of removed tokens do not fade then
    page = open_page(width=width, color_scheme=scheme, reduced_motion="reduce")
    assert violations(page) == []
    choose(page, "showcase")
    run(page)
    lane(page, 1).get_by_role("option").first.click()
    page.get_by_text("Earlier runs").click()
    page.get_by_text("Access token").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
