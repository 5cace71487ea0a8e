"""`stop()`, and what only `main` can do, in scripts of both languages."""

from __future__ import annotations

import pytest

from aicirt.contract.errors import ArgumentError, ControllerFailed
from tests.controllers.script.conftest import Pair, Play, Scripts, check

FIRST: Pair = (
    "from aici import *\nasync def main():\n    force('Bye.')\n    stop()\n    force('never')\n",
    'import { force, stop } from "aici";\n'
    'export async function main() { force("Bye."); stop(); force("never"); }\n',
)
LATER: Pair = (
    "from aici import *\nasync def inner():\n    try:\n        force(' Bye.')\n        stop()\n"
    "    except Exception:\n        print('caught')\n    force('never')\n"
    "async def main():\n    await gen(max_tokens=1)\n    await inner()\n    force('never')\n",
    'import { force, gen, stop } from "aici";\n'
    'async function inner() { force(" Bye."); stop(); force("never"); }\n'
    'export async function main() { await gen({ maxTokens: 1 }); await inner(); force("never"); }\n',
)
NOTHING: Pair = (
    "from aici import *\nasync def main():\n    stop()\n",
    'import { stop } from "aici";\nexport async function main() { stop(); }\n',
)


@pytest.mark.parametrize(
    ("pair", "text"), [(FIRST, "Bye."), (LATER, "x Bye."), (NOTHING, "")], ids=["first", "later", "nothing"]
)
def test_fixed_text_before_stop_is_written(play: Play, pair: Pair, text: str) -> None:
    played = check(play(pair, "xyz"))
    assert played.text == text and "caught" not in played.log


def test_a_script_that_catches_its_end_runs_no_more_actions(play: Play) -> None:
    pair = (
        "from aici import *\nasync def main():\n    try:\n        stop()\n    except:\n        pass\n"
        "    await gen(max_tokens=5)\n    force('never')\n",
        'import { force, gen, stop } from "aici";\nexport async function main() {\n'
        '  try { stop(); } catch {}\n  await gen({ maxTokens: 5 });\n  force("never");\n}\n',
    )
    assert check(play(pair, "xyz")).text == ""


@pytest.mark.parametrize("call", ["force('Hello')", "backtrack(label())"])
def test_actions_at_the_top_level_are_refused(play: Play, call: str) -> None:
    pair = (
        f"from aici import *\n{call}\nasync def main():\n    pass\n",
        f'import {{ backtrack, force, label }} from "aici";\n{call};\nexport async function main() {{}}\n',
    )
    with pytest.raises(ArgumentError, match=r"(?s)line 2, in <module>.*before any request|before any.*js:2:"):
        play(pair, "xyz")


def test_using_an_action_without_await_is_an_error(python: Scripts) -> None:
    source = "from aici import *\nasync def main():\n    said = gen(max_tokens=1)\n    print(said.strip())\n"
    with pytest.raises(ControllerFailed, match=r"write await gen\(\.\.\.\) to have it carried out") as caught:
        python.play(source, "xyz")
    assert "warning: gen(...) was never awaited" in caught.value.detail["log"]


def test_javascript_regexps_are_patterns(javascript: Scripts) -> None:
    source = 'import { gen } from "aici";\nexport async function main() { await gen(%s); }\n'
    assert check(javascript.play(source % "/[0-9]{2}/", "7 a 5 b")).text == "75"
    assert check(javascript.play(source % "/[a-z]+/, { maxTokens: 2 }", "abcdef")).text == "ab"
    for wrong in ('"[0-9]"', "5", "{ regex: /a/ }, { maxTokens: 2 }", "null"):
        with pytest.raises(ControllerFailed, match="gen takes options, or a pattern and options"):
            javascript.play(source % wrong, "xyz")
