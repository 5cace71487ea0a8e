"""Scripts without `main`: the callbacks of the controller interface."""

from __future__ import annotations

import pytest

from aicirt.contract.errors import ArgumentError, ControllerFailed
from tests.controllers.script.conftest import Pair, Play, check

#: every callback and answer in one request: it suspends once, forks, samples, splices and stops
EVERYTHING: Pair = (
    """
from aici import *
state = {"round": 0, "mine": 0}
allowed = TokenSet.text()
allowed.forbid(tokenize("e"))

def init_prompt(tokens):
    print("prompt", len(tokens))

def pre_process(step):
    state["round"] += 1
    if state["round"] == 1:
        return Suspend()
    if state["round"] == 2:
        return Fork(2)

def mid_process(step):
    if len(step.fork_group) == 2:
        state["mine"] = step.fork_group.index(step.sequence)
        return Splice("fork " + str(state["mine"]) + ":")
    if len(text()) > 12:
        return Stop() if state["mine"] else Splice(".", backtrack=1)
    return Sample(allowed, temperature=0, top_logprobs=2)

def post_process(step):
    if step.sampled and len(step.top_logprobs) == 2 and state["round"] < 6:
        print("top", step.top_logprobs[0][0] == step.tokens[0], step.logprob <= 0)
    if text().endswith("."):
        return Stop()
""",
    """
import * as aici from "aici";
let round = 0, mine = 0;
const allowed = aici.TokenSet.text();
allowed.forbid(aici.tokenize("e"));

export function init_prompt(tokens) {
  console.log("prompt", tokens.length);
}

export function pre_process() {
  round++;
  if (round === 1) return aici.Suspend();
  if (round === 2) return aici.Fork(2);
}

export function mid_process(step) {
  if (step.forkGroup.length === 2) {
    mine = step.forkGroup.indexOf(step.sequence);
    return aici.Splice(`fork ${mine}:`);
  }
  if (aici.text().length > 12) return mine ? aici.Stop() : aici.Splice(".", { backtrack: 1 });
  return aici.Sample(allowed, { temperature: 0, topLogprobs: 2 });
}

export function post_process(step) {
  if (step.sampled && step.topLogprobs.length === 2 && round < 6) {
    const [best] = step.topLogprobs;
    const shown = (flag) => (flag ? "True" : "False");
    console.log("top", shown(best.token === step.tokens[0]), shown(step.logprob <= 0));
  }
  if (aici.text().endsWith(".")) return aici.Stop();
}
""",
)


def test_every_callback_and_answer(play: Play) -> None:
    first, second = play(EVERYTHING, "fork 0: abcdefgh", prompt="ab").all
    check(first)
    assert first.suspended == 1
    assert first.text.startswith("fork 0:") and first.text.endswith(".") and "e" not in first.text[7:]
    assert second.text.startswith("fork 1:") and len(second.text) > 12
    assert {first.finish_reason, second.finish_reason} == {"stop"}
    assert first.log.startswith("prompt 2\ntop True True\n")


NOTHING: Pair = (
    "def mid_process(step):\n    pass\n",
    "export function mid_process() {}\n",
)
WRONG_PLACE: Pair = (
    "from aici import *\ndef mid_process(step):\n    return Fork(2)\n",
    'import { Fork } from "aici";\nexport function mid_process() { return Fork(2); }\n',
)
NO_ANSWER: Pair = (
    "from aici import *\ndef mid_process(step):\n    return 42\n",
    "export function mid_process() { return 42; }\n",
)
NOTHING_ALLOWED: Pair = (
    "from aici import *\ndef mid_process(step):\n    return Sample(TokenSet())\n",
    'import { Sample, TokenSet } from "aici";\n'
    "export function mid_process() { return Sample(new TokenSet()); }\n",
)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (NOTHING, "mid_process must return Sample(...), Splice(...), Look(...) or Stop()"),
        (WRONG_PLACE, "Fork is an answer of pre_process, not of mid_process"),
        (NO_ANSWER, "mid_process returned what is no answer of it: 42"),
        (NOTHING_ALLOWED, "the set of allowed tokens is empty"),
    ],
)
def test_wrong_answers(play: Play, pair: Pair, message: str) -> None:
    error = play(pair).error
    assert isinstance(error, ControllerFailed)
    assert message in str(error)


BOTH: Pair = (
    "async def main():\n    pass\ndef mid_process(step):\n    pass\n",
    "export async function main() {}\nexport function mid_process() {}\n",
)
NOT_ASYNC: Pair = ("def main():\n    pass\n", "export function main() {}\n")


def test_a_script_has_main_or_callbacks_but_not_both(play: Play) -> None:
    with pytest.raises(ArgumentError, match="defines both main and mid_process"):
        play(BOTH)


def test_main_must_be_asynchronous(play: Play) -> None:
    with pytest.raises(ControllerFailed, match="main must be"):
        play(NOT_ASYNC)


FOLLOW: Pair = (
    """
from aici import *
number = regex("[0-9]+!")
async def main():
    follow = number.follow()
    seen = ""
    while not follow.ended:
        certain = follow.forced()
        if certain:
            await force(certain)
            follow.append(certain)
            continue
        one = await sample(follow.allowed())
        follow.append([one.token])
        seen += token_bytes(one.token).decode()
        print(seen, follow.may_end, len(follow.allowed()) > 9)
        if len(seen) == 3:
            end = tokenize("!")
            print(end[0] in follow.allowed())
            follow.append(end)
            await force(end)
            print(follow.may_end)
            break
    follow.close()
    try:
        number.follow().append("a")
    except Error as error:
        print("refused")
""",
    """
import { regex, force, sample, tokenBytes, tokenize } from "aici";
const number = regex("[0-9]+!");
const shown = (flag) => (flag ? "True" : "False");
export async function main() {
  const follow = number.follow();
  let seen = "";
  while (!follow.ended) {
    const certain = follow.forced();
    if (certain.length > 0) {
      force(certain);
      follow.append(certain);
      continue;
    }
    const one = await sample(follow.allowed());
    follow.append([one.token]);
    seen += String.fromCharCode(...tokenBytes(one.token));
    console.log(seen, shown(follow.mayEnd), shown(follow.allowed().size > 9));
    if (seen.length === 3) {
      const end = tokenize("!");
      console.log(shown(follow.allowed().has(end[0])));
      follow.append(end);
      force(end);
      console.log(shown(follow.mayEnd));
      break;
    }
  }
  follow.close();
  try {
    number.follow().append("a");
  } catch {
    console.log("refused");
  }
}
""",
)


def test_constraints_driven_by_callbacks(play: Play) -> None:
    transcript = check(play(FOLLOW, "123456"))
    assert transcript.text == "123!"
    assert transcript.log.splitlines() == [
        "1 False True",
        "12 False True",
        "123 False True",
        "True",
        "True",
        "refused",
    ]


SETS: Pair = (
    """
from aici import *
a = TokenSet(tokenize("abc"))
b = TokenSet(tokenize("bcd"))
async def main():
    x = tokenize("x")[0]
    for s in (a | b, a & b, a - b, TokenSet.text() & a):
        print(len(s), sorted(token_bytes(t).decode() for t in s), x in s)
    c = a.copy()
    c.allow(x)
    print(len(c), len(a), c == a, a == TokenSet(list(a)), len(TokenSet.all()) == vocab_size())
    print(is_special(eos_tokens()[0]), is_special(x), detokenize([x, x]).decode())
""",
    """
import { TokenSet, tokenize, tokenBytes, vocabSize, isSpecial, eosTokens, detokenize } from "aici";
const a = new TokenSet(tokenize("abc"));
const b = new TokenSet(tokenize("bcd"));
const shown = (flag) => (flag ? "True" : "False");
export async function main() {
  const [x] = tokenize("x");
  for (const s of [a.or(b), a.and(b), a.minus(b), TokenSet.text().and(a)]) {
    const texts = [...s].map((t) => String.fromCharCode(...tokenBytes(t))).sort();
    console.log(s.size, texts.length === 0 ? "[]" : `['${texts.join("', '")}']`, shown(s.has(x)));
  }
  const c = a.copy();
  c.allow(x);
  const again = new TokenSet([...a]);
  const same = (one, other) => one.minus(other).size === 0 && other.minus(one).size === 0;
  const whole = TokenSet.all().size === vocabSize();
  console.log(c.size, a.size, shown(same(c, a)), shown(same(a, again)), shown(whole));
  console.log(shown(isSpecial(eosTokens()[0])), shown(isSpecial(x)), detokenize([x, x]));
}
""",
)


def test_sets_of_tokens(play: Play) -> None:
    lines = check(play(SETS)).log.splitlines()
    assert lines[0].endswith("False")
    count = [int(line.split()[0]) for line in lines[:4]]
    assert count[0] == count[1] + count[2] + (count[0] - count[3]) and count[3] == count[1] + count[2]
    assert lines[4].endswith("False True True")
    assert lines[5] == "True False xx"
