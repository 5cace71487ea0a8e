"""Calls of scripts, in both languages, with functions of this process that answer them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lab.system.waiting import PATIENCE
from pyaici.client.calls import CallError
from tests.controllers.script.conftest import Pair, Play, check, failed

CALLS: Pair = (
    """
from aici import *
async def main():
    first = call("add", a=2, b=3)
    digits = await gen(regex="[0-9]{3}")
    print(await first, first.done, await first)
    print(await gather(call("add", {"a": 1, "b": 1}), gen(regex="[a-z]{2}"), call("join", ["x", "y"])))
    for name in ("fails", "picky", "nothing"):
        try:
            await call(name)
        except CallError as error:
            print(error.code, error)
    print([each["name"] for each in await call("aici.calls")])
""",
    """
import { call, gen, gather } from "aici";
export async function main() {
  const first = call("add", { a: 2, b: 3 });
  await gen({ regex: "[0-9]{3}" });
  console.log(await first, first.done ? "True" : "False", await first);
  const [two, text, joined] = await gather([
    call("add", { a: 1, b: 1 }), gen({ regex: "[a-z]{2}" }), call("join", ["x", "y"]),
  ]);
  console.log(`[${two}, '${text}', '${joined}']`);
  for (const name of ["fails", "picky", "nothing"]) {
    try {
      await call(name);
    } catch (error) {
      console.log(error.code, error.message);
    }
  }
  const names = (await call("aici.calls")).map((each) => `'${each.name}'`);
  console.log(`[${names.join(", ")}]`);
}
""",
)


def _fails() -> None:
    raise ValueError("no luck")


def _picky() -> None:
    raise CallError("too_picky", "not today")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "join": lambda *parts: "-".join(parts),
    "fails": _fails,
    "picky": _picky,
}


def test_calls_and_their_errors(play: Play) -> None:
    transcript = check(play(CALLS, "123 ab", calls=FUNCTIONS))
    assert transcript.text == "123ab"
    assert transcript.log.splitlines() == [
        "5 True 5",
        "[2, 'ab', 'x-y']",
        "failed ValueError: no luck",
        "too_picky not today",
        "unknown_call nobody answers the call 'nothing'; there are: add, fails, join, picky",
        "['add', 'join', 'fails', 'picky']",
    ]


OVERLAP: Pair = (
    """
from aici import *
async def main():
    slow = call("slow")
    await gen(regex="[0-9]{5}")
    print("written", slow.done)
    await call("go")
    print(await slow)
""",
    """
import { call, gen } from "aici";
export async function main() {
  const slow = call("slow");
  await gen({ regex: "[0-9]{5}" });
  console.log("written", slow.done ? "True" : "False");
  await call("go");
  console.log(await slow);
}
""",
)


def test_text_is_written_while_a_call_is_under_way(play: Play) -> None:
    """The answer comes only after the script has said that it has written the text."""
    go = threading.Event()

    def slow() -> str:
        return "went" if go.wait(PATIENCE) else "never"

    transcript = check(play(OVERLAP, "12345", calls={"slow": slow, "go": go.set}))
    assert (transcript.text, transcript.log) == ("12345", "written False\nwent\n")


TOOL: Pair = (
    """
import json
from aici import *
async def main():
    print(await gather(gen(schema=tool_arguments("add")), call("join", ["x"])))
    found = await generate(schema=tool_arguments("add"), max_tokens=40)
    print(found.finish_reason, await call("add", json.loads(found.text)))
    print((await tool_arguments("add"))["required"])
    for name in ("nothing", "bare", "bad"):
        try:
            await gen(schema=tool_arguments(name))
        except CallError as error:
            print(error.code, error)
        except Error as error:
            print("error", str(error))
    gen(schema=tool_arguments("add"))
""",
    """
import { call, gather, gen, generate, toolArguments, CallError } from "aici";
export async function main() {
  const both = await gather([gen({ schema: toolArguments("add") }), call("join", ["x"])]);
  console.log(`['${both.join("', '")}']`);
  const found = await generate({ schema: toolArguments("add"), maxTokens: 40 });
  console.log(found.finishReason, await call("add", JSON.parse(found.text)));
  console.log(`['${(await toolArguments("add")).required.join("', '")}']`);
  for (const name of ["nothing", "bare", "bad"]) {
    try {
      await gen({ schema: toolArguments(name) });
    } catch (error) {
      if (error instanceof CallError) console.log(error.code, error.message);
      else console.log("error", error.message);
    }
  }
  gen({ schema: toolArguments("add") });
}
""",
)


def _add(a: int, b: int) -> int:
    return a + b


def _bad() -> None:
    """Has an invalid schema."""


_bad.schema = {"type": "not-a-type"}  # type: ignore[attr-defined]


def test_arguments_of_a_tool_are_always_valid(play: Play) -> None:
    """The model wants a text for a number, and other arguments."""
    calls = {"add": _add, "join": "-".join, "bare": iter, "bad": _bad}
    wish = '{"a": "one", "b": 2, "c": 3} {"a": 4, "b": 5}'
    transcript = check(play(TOOL, wish, calls=calls))
    assert transcript.log.splitlines() == [
        """['{"a": 2, "b": 3}', 'x']""",
        "complete 9",
        "['a', 'b']",
        "unknown_call nobody answers the call 'nothing'; there are: add, join, bare, bad",
        "no_schema the call 'bare' has no schema: write your own",
        "error the schema is refused",
        "#/type: one of null, boolean, integer, number, string, array, object is expected",
        "warning: gen(...) was never awaited: write await gen(...)",
    ]


FORKED: Pair = (
    """
from aici import *
async def main():
    shared = call("name")
    mine = await fork(3)
    own = await call("double", n=mine)
    await force(f"{await shared}{own} ")
""",
    """
import { call, fork, force } from "aici";
export async function main() {
  const shared = call("name");
  const mine = await fork(3);
  const own = await call("double", { n: mine });
  force(`${await shared}${own} `);
}
""",
)


def test_forks_have_calls_of_their_own_and_read_those_from_before(play: Play) -> None:
    transcript = check(play(FORKED, calls={"name": "n", "double": lambda n: 2 * n}))
    assert [each.text for each in transcript.all] == ["n0 ", "n2 ", "n4 "]


LATE: Pair = (
    """
from aici import *
async def main():
    try:
        await call("never").wait(0.01)
    except CallError as error:
        print(error.code, error)
    await sleep(0.01)
    await force("done")
""",
    """
import { call, sleep, force } from "aici";
export async function main() {
  try {
    await call("never").wait(0.01);
  } catch (error) {
    console.log(error.code, error.message);
  }
  await sleep(0.01);
  force("done");
}
""",
)


def test_a_wait_may_have_a_limit(play: Play) -> None:
    over = threading.Event()
    try:
        transcript = check(play(LATE, calls={"never": lambda: over.wait(PATIENCE)}))
    finally:
        over.set()
    assert transcript.text == "done"
    assert transcript.log == "timeout never has not answered within 0.01 s\n"


LONELY: Pair = (
    'from aici import *\nasync def main():\n    await call("add")\n',
    'import { call } from "aici";\nexport async function main() { await call("add"); }\n',
)


def test_without_anybody_who_answers(play: Play) -> None:
    assert "nobody answers calls of this request" in failed(play, LONELY)


STUCK: Pair = (
    'from aici import *\nasync def main():\n    await wait("never")\n',
    'import { wait } from "aici";\nexport async function main() { await wait("never"); }\n',
)


@pytest.mark.parametrize("calls", [None, {"add": 1}], ids=["without", "with"])
def test_waiting_for_what_nobody_writes_ends_at_once(play: Play, calls: dict[str, Any] | None) -> None:
    transcript = play(STUCK, calls=calls)
    assert transcript.error is not None and transcript.error.code == "deadlock"
    assert transcript.suspended == 1
