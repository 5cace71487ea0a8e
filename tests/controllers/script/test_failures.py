"""Invalid scripts, and scripts beyond a limit: their errors, and that other sequences continue."""

from __future__ import annotations

import re

import pytest

from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    ControllerFailed,
    TimeLimitError,
    TrapError,
)
from pyaici.testing import Playground
from tests.controllers.script.conftest import WELL, Pair, Play, Scripts, check, failed


def refused(play: Play, pair: Pair) -> str:
    """Why the script is refused before there is a prompt."""
    with pytest.raises(ArgumentError) as caught:
        play(pair)
    return str(caught.value)


def test_errors_at_the_top_level_name_file_line_and_cause(play: Play) -> None:
    said = refused(play, ("x = 1\ndef f(:\n", "let x = 1;\nlet y = (;\n"))
    assert "SyntaxError" in said and "script." in said and ("line 2" in said or ":2:" in said)
    said = refused(play, ("x = 1\nnothing()\n", "let x = 1;\nnothing();\n"))
    assert ("NameError: name 'nothing' isn't defined" in said and 'File "script.py", line 2' in said) or (
        "ReferenceError: nothing is not defined" in said and "script.js:2:" in said
    )
    said = refused(play, ("x = 1\n", "let x = 1;\n"))
    assert "defines neither main, an async function, nor mid_process" in said
    said = refused(play, ("import os\n", 'import "os";\n'))
    assert "no module named 'os'" in said or 'there is no module "os"' in said


def test_an_invalid_pattern_is_an_error_of_its_line(play: Play) -> None:
    pair = (
        "from aici import *\n\nP = regex('(a')\n",
        'import { regex } from "aici";\n\nconst p = regex("(a");\n',
    )
    said = refused(play, pair)
    assert "this group is not closed" in said or "(" in said
    assert "line 3" in said or "script.js:3:" in said


def test_errors_in_main_have_a_traceback_through_its_calls(play: Play) -> None:
    pair = (
        "from aici import *\ndef inner(x):\n    return 1 // x\n"
        "async def main():\n    await gen(max_tokens=2)\n    inner(0)\n",
        'import { gen } from "aici";\nfunction inner(x) {\n  return x.none.more;\n}\n'
        "export async function main() {\n  await gen({ maxTokens: 2 });\n  inner({});\n}\n",
    )
    said = failed(play, pair, "abc")
    if "Zero" in said:
        assert (
            'File "script.py", line 6, in main\n' in said and 'File "script.py", line 3, in inner\n' in said
        )
        assert said.endswith("ZeroDivisionError: divide by zero")
    else:
        assert said.index("at inner (script.js:3:") < said.index("at main (script.js:7:")
        assert "TypeError: cannot read property 'more' of undefined" in said


def test_errors_of_actions_are_raised_at_their_await_and_can_be_caught(play: Play) -> None:
    pair = (
        """
from aici import *
async def main():
    for wrong in (dict(regex="("), dict(nonsense=1), dict(regex="a", choice=["b"]), dict(stop=""),
                  dict(max_tokens=-1), dict(temperature=-1), dict(stop=["a"] * 65)):
        try:
            await gen(**wrong)
        except (Error, TypeError, ValueError) as error:
            print(type(error).__name__)
    await force("fine")
""",
        """
import { gen, force } from "aici";
export async function main() {
  for (const wrong of [{ regex: "(" }, { nonsense: 1 }, { regex: "a", choice: ["b"] }, { stop: "" },
                       { maxTokens: -1 }, { temperature: -1 }, { stop: Array(65).fill("a") }]) {
    try {
      await gen(wrong);
    } catch (error) {
      console.log(error.name);
    }
  }
  force("fine");
}
""",
    )
    transcript = check(play(pair))
    names = transcript.log.split()
    assert names in (
        ["Error", "TypeError", "TypeError", *["ValueError"] * 4],
        ["Error", "TypeError", "TypeError", *["RangeError"] * 4],
    )
    assert transcript.text == "fine"


LOOPS: list[Pair] = [
    # in main, in a callback
    (
        "async def main():\n    while True:\n        pass\n",
        "export async function main() { for (;;) {} }\n",
    ),
    (
        "from aici import *\nasync def main():\n    await gen(max_tokens=1)\n    while True:\n        pass\n",
        'import { gen } from "aici";\n'
        "export async function main() { await gen({ maxTokens: 1 }); for (;;) {} }\n",
    ),
    (
        "from aici import *\ndef mid_process(step):\n    while True:\n        pass\n",
        "export function mid_process() { for (;;) {} }\n",
    ),
]


def test_time_limit_ends_an_endlessly_backtracking_javascript_pattern(
    javascript: Scripts,
) -> None:
    """In Python, matching takes time in proportion to the text (test_re.py)."""
    script = 'export async function main() { /^(a*)*b$/.test("a".repeat(5000)); }\n'
    with pytest.raises((TimeLimitError, TrapError)):
        javascript.play(script)
    assert check(javascript.play(WELL[1], "42")).log == "42\n"


@pytest.mark.parametrize("pair", LOOPS, ids=["at_once", "later", "callback"])
def test_time_limit_ends_endless_loops(play: Play, pair: Pair) -> None:
    try:
        error: AiciError | None = play(pair, "abc").error
    except AiciError as early:
        error = early
    assert isinstance(error, TimeLimitError), error
    said = error.message
    assert "TimeLimitError: the script has used up its CPU time" in said and "\nthe limit is " in said
    assert re.search(
        r"line [2345], in (main|mid_process)\n| at (main|mid_process) \(script.js:[12]:", said
    ), said
    assert check(play(WELL, "42")).log == "42\n"


def test_the_interpreter_works_after_a_caught_error(play: Play) -> None:
    pair = (
        """
from aici import *
def deep(n):
    return deep(n + 1)
async def main():
    for i in range(3):
        try:
            deep(0)
        except RuntimeError:
            pass
        try:
            bytes(100000000)
        except MemoryError:
            print("caught", i)
        await force(str(i))
        await gen(max_tokens=1)
""",
        """
import { force, gen } from "aici";
function deep(n) { return deep(n + 1) + 1; }
export async function main() {
  for (let i = 0; i < 3; i++) {
    try { deep(0); } catch {}
    try { new Uint8Array(100000000); } catch { console.log("caught", i); }
    force(String(i));
    await gen({ maxTokens: 1 });
  }
}
""",
    )
    transcript = check(play(pair, "0a1b2c"))
    assert transcript.log == "caught 0\ncaught 1\ncaught 2\n"


def test_an_error_in_one_fork_does_not_affect_the_others(play: Play) -> None:
    pair = (
        """
from aici import *
async def main():
    await force("x")
    mine = await fork(3)
    await force(str(mine))
    await gen(max_tokens=1)
    if mine == 1:
        raise ValueError("mine alone")
    if mine == 2:
        while True:
            pass
    await force(" well")
""",
        """
import { force, fork, gen } from "aici";
export async function main() {
  force("x");
  const mine = await fork(3);
  force(String(mine));
  await gen({ maxTokens: 1 });
  if (mine === 1) throw new RangeError("mine alone");
  if (mine === 2) for (;;) {}
  force(" well");
}
""",
    )
    first, second, third = play(pair, "x0ab").all
    assert first.error is None and first.text.endswith(" well")
    assert "mine alone" in str(second.error) and isinstance(second.error, ControllerFailed)
    assert isinstance(third.error, TimeLimitError)


LONG: Pair = (
    """
from aici import *
async def main():
    kept = {"turns": 0}
    for turn in range(arg):
        here = label()
        words = [str(i) * 20 for i in range(100)]
        text = await gen(regex="[a-z ]{1,9}", max_tokens=2)
        kept["turns"] += len(words) // 100
        backtrack(here)
    print(kept["turns"])
""",
    """
import { arg, label, gen, backtrack } from "aici";
export async function main() {
  const kept = { turns: 0 };
  for (let turn = 0; turn < arg; turn++) {
    const here = label();
    const words = Array.from({ length: 100 }, (_, i) => String(i).repeat(20));
    const ring = { words };
    ring.self = ring; // a cycle, which counting references does not find
    await gen({ regex: "[a-z ]{1,9}", maxTokens: 2 });
    kept.turns += words.length / 100;
    backtrack(here);
  }
  console.log(kept.turns);
}
""",
)


def test_a_long_conversation_stays_within_its_memory(playground: Playground, play: Play) -> None:
    """1000 turns make 5 to 15 MB of garbage; a MiB of growth is refused."""
    transcript = check(play(LONG, "see the end", arg=1000, max_tokens=2000))
    assert transcript.log == "1000\n"


def test_the_argument_of_the_controller(python: Scripts) -> None:
    play = python.playground.play
    assert play("pyctrl", "7", arg=WELL[0]).log == "7\n"
    assert play("jsctrl", "7", arg=WELL[1]).log == "7\n"
    for argument, message in (
        ("", "needs a script in Python"),
        (" \n", "needs a script in Python"),
        ("{", "is JSON"),
        ("{}", 'no member "script"'),
        ('{"script": 1}', 'an invalid member "script": it may have'),
        ('{"script": "x", "more": 1}', '"more"'),
        ('{"script": "x=1\\n"}', "script defines neither main"),
    ):
        with pytest.raises(ArgumentError, match=message):
            play("pyctrl", arg=argument)
