"""Several sequences of one script: the same script in both languages does the same."""

from __future__ import annotations

import re
from dataclasses import replace

from pyaici.client.arguments import ALL
from tests.controllers.script.conftest import Pair, Play, check

FORKS: Pair = (
    """
from aici import *
async def main():
    await force("A")
    mine = await fork(3)
    await force(str(mine))
    if mine > 0:
        set_var("said", str(mine), if_version=0)
        append_var("all", str(mine))
        stop()
    said = await wait("said", "all")
    while len(said[1]) < 2:  # the other one may take another round
        await next_step()
        said[1] = get_var("all")
    print(mine, said, get_var("none"), get_var("none", "?"), var_version("all"))
""",
    """
import { force, fork, setVar, appendVar, stop, wait, nextStep, getVar, varVersion } from "aici";
export async function main() {
  force("A");
  const mine = await fork(3);
  force(String(mine));
  if (mine > 0) {
    setVar("said", mine, { ifVersion: 0 });
    appendVar("all", mine);
    stop();
  }
  const said = await wait("said", "all");
  while (said[1].length < 2) { // the other one may take another round
    await nextStep();
    said[1] = getVar("all");
  }
  const shown = `['${said.join("', '")}']`;
  console.log(mine, shown, getVar("none") ?? "None", getVar("none", "?"), varVersion("all"));
}
""",
)


def test_forks_and_variables(play: Play) -> None:
    transcript = check(play(FORKS))
    # text that is fixed before the end is written
    assert [fork.text for fork in transcript.all] == ["A0", "A1", "A2"]
    # the forks run side by side: either may be the first to write each variable
    assert re.fullmatch(r"0 \['[12]', '(12|21)'\] None \? 2\n", transcript.log)
    # a fork after forced text takes no extra round
    assert transcript.history == "{A}{0}"


GATHER: Pair = (
    """
from aici import *
def ask(colour):
    async def ask():
        await force(colour + " ")
        return {"colour": colour, "text": await gen(max_tokens=2)}
    return ask
async def main():
    await force("Go: ")
    found = await gather(ask("red"), ask("blue"))
    print([one["colour"] for one in found], len(found[0]["text"]))
    await force("done")
""",
    """
import { force, gen, gather } from "aici";
const ask = (colour) => async () => {
  force(colour + " ");
  return { colour, text: await gen({ maxTokens: 2 }) };
};
export async function main() {
  force("Go: ");
  const found = await gather([ask("red"), ask("blue")]);
  console.log(`['${found.map((one) => one.colour).join("', '")}']`, found[0].text.length);
  force("done");
}
""",
)


def test_gather_runs_functions_in_forks_and_returns_their_results(play: Play) -> None:
    transcript = check(play(GATHER, "Go: red xy"))
    assert transcript.text == "Go: done"
    assert transcript.log == "['red', 'blue'] 2\n"
    assert transcript.variables == {}
    assert [fork.text[:9] for fork in transcript.forks] == ["Go: blue "]


ATTEMPTS: Pair = (
    """
from aici import *
made = 0
async def check():
    global made
    made += 1
    await force("no" + str(made))
    return made % 3 == 0 and made
async def main():
    print(await retry(check, attempts=5), text())
    for attempts in (2, 0):
        try:
            await retry(check, attempts)
        except (Error, ValueError) as error:
            print(error, text())
    print(await choose([" one"]), await choose([" red", " green", " blue"]))
""",
    """
import { retry, choose, force, text } from "aici";
let made = 0;
async function check() {
  made++;
  force("no" + made);
  return made % 3 === 0 && made;
}
export async function main() {
  console.log(await retry(check, 5), text());
  for (const attempts of [2, 0]) {
    try {
      await retry(check, attempts);
    } catch (error) {
      console.log(error.message, text());
    }
  }
  console.log(await choose([" one"]), await choose([" red", " green", " blue"]));
}
""",
)


def test_attempts_until_a_check_passes_and_the_most_likely_text(play: Play) -> None:
    transcript = check(play(ATTEMPTS, "no3 one green"))
    assert transcript.text == "no3 one green"
    assert transcript.log.splitlines() == [
        "3 no3",
        "none of 2 attempts has passed its check no3",
        "attempts is 0; it must be at least 1 no3",
        " one  green",
    ]
    assert transcript.variables == {}


def test_missing_fork_or_backtrack_raises_a_catchable_error(play: Play) -> None:
    pair = (
        """
from aici import *
async def main():
    try:
        await fork(2)
    except Error as error:
        print(error)
    here = label()
    await force("ab")
    try:
        await backtrack(here)
    except Error as error:
        print(error)
    print(capability("fork"), capability("backtrack"), capability("ff_tokens"))
""",
        """
import { fork, label, force, backtrack, capability } from "aici";
export async function main() {
  try {
    await fork(2);
  } catch (error) {
    console.log(error.message);
  }
  const here = label();
  force("ab");
  try {
    backtrack(here);
  } catch (error) {
    console.log(error.message);
  }
  console.log(capability("fork"), capability("backtrack"), capability("ff_tokens"));
}
""",
    )
    transcript = check(play(pair, capabilities=replace(ALL, fork=False, backtrack=False)))
    assert transcript.log.splitlines() == [
        'this engine cannot fork: see capability("fork")',
        'this engine cannot backtrack: see capability("backtrack")',
        "0 0 1",
    ]
    assert transcript.text == "ab"


RANDOM: Pair = (
    """
import random
from aici import *
async def main():
    mine = await fork(3)
    append_var("drawn", str(random.random()) + " ")
    await force(str(mine))
""",
    """
import { fork, appendVar, force } from "aici";
export async function main() {
  const mine = await fork(3);
  appendVar("drawn", Math.random() + " ");
  force(String(mine));
}
""",
)


def test_each_fork_draws_its_own_random_numbers(play: Play) -> None:
    def numbers_of(seed: int) -> list[str]:
        # sorted: which fork is first depends on how busy the machine is
        return sorted(check(play(RANDOM, seed=seed)).variables["drawn"].decode().split())

    drawn = [numbers_of(seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for numbers in drawn:
        assert len(set(numbers)) == 3
        assert all(0 <= float(number) < 1 for number in numbers)
