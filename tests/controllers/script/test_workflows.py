"""The samples of workflows: structure, constraints, effects.

No test expects anything of what the default model writes. In most tests a simulated model writes, and
functions answer in place of the MCP server: see test_samples.py.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.system.waiting import PATIENCE
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import FinishReason, Request, Sampling
from pyaici.models import default_gguf_path
from pyaici.testing import Playground
from pyaici.testing.playground import Transcript
from pyaici.tools.process import ToolsProcess
from pyaici.tools.settings import ToolSettings
from tests.controllers.script import test_samples
from tests.controllers.script.test_samples import (
    CONTROLLERS,
    LANGUAGES,
    SAMPLES,
    Played,
    Sample,
    pretend,
    simulated,
    tried,
)
from tests.pyaici.tools import calculator
from tests.pyaici.tools.support import server

#: the tools of the MCP server as functions, for the simulated model; results have the form of the server's
TOOLS: dict[str, Callable[..., Any]] = {
    "tools.run": calculator.run,
    "tools.add": lambda a, b: {"result": a + b},
    "tools.multiply": lambda a, b: {"result": a * b},
    "tools.query": lambda sql: {"result": calculator.query(sql)},
    "tools.passages": lambda words: {"result": calculator.passages(words)},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    """The default model, and an MCP server whose tools all its requests may call."""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(workers=1))
        tools = stack.enter_context(ToolsProcess(daemon.socket_path, ToolSettings((server("tools"),))))
        # biases need two dense rows for each sequence
        runtime = stack.enter_context(Runtime(daemon.socket_path, num_dense=16))
        model = stack.enter_context(LlamaModel(load_library(), default_gguf_path()))
        engine = stack.enter_context(LlamaEngine(model, runtime))
        assert tools.wait_until_ready(PATIENCE)
        yield engine


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


#: agents of the sample that hands over, beside its argument, and the message of the guest
COLLEAGUES = ("cook", "cashier")
GUEST = "My soup is cold, and the bill is wrong."


def read(name: str) -> Sample:
    return Sample.read(CONTROLLERS / LANGUAGES[Path(name).suffix] / "samples" / name)


def play(engine: LlamaEngine, sample: Sample, arg: Any = None) -> Played:
    """Runs a sample with its own argument, or with another one."""
    given = sample.arg if arg is None else arg
    # its argument, and those of its colleagues, are the names of runs
    names = (given, *COLLEAGUES) if sample.path.stem == "hand_over" else ("",)
    numbers = [
        engine.add(
            Request(
                [{"role": "user", "content": sample.prompt}],
                controller=LANGUAGES[sample.path.suffix],
                arg=json.dumps({**json.loads(sample.argument), "arg": name or given}),
                sampling=Sampling(seed=1),
                max_tokens=250,
                calls={},
                name=name,
            )
        )
        for name in names
    ]
    if engine.runtime is not None and len(names) > 1:
        engine.runtime.answerer.send(given, {"guest": GUEST, "asked": []})
    engine.run()
    results = [result for number in numbers for result in engine.results(number)]
    for result in results:
        assert result.error is None, result.error
        assert result.finish_reason is FinishReason.STOP, result.text
    variables = {name: value.decode() for name, value in results[0].variables.items()}
    return Played(sample, results[0].text, variables, [result.text for result in results], results[0].log)


def force(playground: Playground, name: str, wish: str, arg: Any = None) -> Transcript:
    """Runs a sample with a simulated model that wants to write `wish`."""
    sample = read(name)
    arg = sample.arg if arg is None else arg
    transcript = playground.play(sample.path, wish, arg=arg, calls=TOOLS, max_tokens=600)
    assert transcript.error is None, transcript.error
    return transcript


# -- what each promises ----------------------------------------------------------------------------------


def works(code: str) -> bool:
    try:
        calculator.run(code)
    except calculator.ToolError:
        return False
    return True


def code_act(played: Played) -> None:
    blocks = re.findall(r"```python\n(.*?)\n```\n(Error: )?", played.text, re.DOTALL)
    last = played.text.rpartition("```\n")[2]
    for number, (code, error) in enumerate(blocks, 1):
        right = last == "All checks pass." and number == len(blocks)
        assert works(f"{code}\n{played.sample.arg}") == right == (not error)
    if last == "All checks pass.":
        assert played.variables == {"code": blocks[-1][0] + "\n", "attempts": str(len(blocks))}
    else:
        assert last.endswith("I give up.") and len(blocks) == 4 and not played.variables


def plan(played: Played) -> None:
    steps = re.findall(r"^(#\d): (\w+) (#?\d+) (#?\d+)$", played.text, re.MULTILINE)
    assert 1 <= len(steps) <= 3
    results: dict[str, int] = {}
    for name, tool, *values in steps:
        a, b = [results[value] if value in results else int(value) for value in values]
        results[name] = a + b if tool == "add" else a * b
    assert {f"{name} = {result}" for name, result in results.items()} < set(played.text.splitlines())
    assert played.text.endswith(f"\nAnswer: {played.variables['answer']}")


def cite(played: Played) -> None:
    passages = json.loads(played.variables["passages"])
    quotes = json.loads(played.variables["quotes"])
    assert set(passages.values()) <= set(calculator.PASSAGES)
    assert len({name for name, _ in quotes}) == len(quotes) >= 1  # no passage twice
    for line, (name, quote) in zip(played.text.splitlines(), quotes, strict=True):
        assert quote in passages[name]
        assert line.startswith("So ") and line.endswith(f' [{name}: "{quote}"].')


def map_reduce(played: Played) -> None:
    texts = played.sample.arg
    assert played.log == "4 notes\n2 notes\n" and played.text == played.variables["summary"]
    assert len(played.texts) == 1 + (len(texts) - 1) + 1  # one fork of each gather is the first sequence
    for text, fork in zip(texts[1:], played.texts[1:4], strict=True):
        assert fork.startswith(f"Text:\n{text}\nThe text in")
    assert played.texts[4].count("\n") == 3  # two notes


def tree_of_thoughts(played: Played) -> None:
    values = [float(line[:6]) for line in played.log.splitlines()]
    states = [line[6:] for line in played.log.splitlines()]
    assert len(states) == 3 + 6 and all(0 <= value <= 1 for value in values)
    ranked = sorted(range(3), key=lambda at: -values[at])
    for number, at in enumerate(range(3, 9)):  # three thoughts for each of the two best states
        assert any(states[at].startswith(states[best]) for best in ranked[:2]), number
    best = max(range(3, 9), key=lambda at: values[at])
    assert played.text == states[best].strip() and float(played.variables["value"]) == values[best]


def tree_search(played: Played) -> None:
    """Replays the tree from the rounds: selection by UCB1, expansion by new moves, rewards."""
    rounds = [line.split() for line in played.log.splitlines()]
    visits, totals = dict[tuple[str, ...], int](), dict[tuple[str, ...], float]()
    for reward, *moves in rounds:
        assert float(reward[:-1]) == pytest.approx(1 / (1 + abs(21 - sum(map(int, moves)))), abs=1e-3)
        for depth in range(4):
            node = tuple(moves[:depth])
            children = [child for child in visits if len(child) == depth + 1 and child[:-1] == node]
            bounds = {
                child: totals[child] / visits[child] + math.sqrt(2 * math.log(visits[node]) / visits[child])
                for child in children
            }
            chosen = tuple(moves[: depth + 1])
            if len(children) < 3:  # a new node, and the end of the known part
                assert depth == 3 or chosen not in children
                path = [tuple(moves[:length]) for length in range(min(depth + 1, 3) + 1)]
                break
            assert bounds[chosen] == pytest.approx(max(bounds.values()))
        for node in path:
            visits[node] = visits.get(node, 0) + 1
            totals[node] = totals.get(node, 0) + 1 / (1 + abs(21 - sum(map(int, moves))))
    assert len(rounds) == played.sample.arg["rounds"]
    assert played.variables["visits"] == " ".join(
        f"{node[0]}:{count}" for node, count in visits.items() if len(node) == 1
    )
    assert sum(map(int, played.text.split(" + "))) in {sum(map(int, moves)) for _, *moves in rounds}
    best = max(float(reward[:-1]) for reward, *_ in rounds)
    assert best == pytest.approx(1 / (1 + abs(21 - sum(map(int, played.text.split(" + "))))), abs=1e-3)


def adaptive_vote(played: Played) -> None:
    votes = played.variables["votes"].split()
    winner = max(votes, key=votes.count)
    assert played.text == f"{winner} ({votes.count(winner)} of {len(votes)} say so)"
    assert len(votes) in (4, 5)
    for some in range(2, len(votes), 2):  # it does not go on when nothing can change
        counts = sorted([votes[:some].count(vote) for vote in set(votes)] + [0, 0])
        assert counts[-1] <= counts[-2] + 5 - some


def reflexion(played: Played) -> None:
    failed = played.log.splitlines()
    for line in failed:
        query, _, outcome = line.partition(": ")
        try:
            assert not calculator.query(query) and outcome == "it finds nothing"
        except calculator.ToolError as error:
            assert outcome.endswith(str(error))
    if "query" in played.variables:
        query = played.variables["query"]
        rows = calculator.query(query)
        assert rows and played.text == f"{query}\n{', '.join(str(row[0]) for row in rows)}"
        assert played.variables["attempts"] == str(len(failed) + 1)
    else:
        assert played.text == "I give up." and len(failed) == 4


def hand_over(played: Played) -> None:
    asked = played.variables["asked"].split()
    assert asked[0] == "waiter" and 2 <= len(asked) == len(set(asked)) <= 3
    texts = dict(zip(("waiter", *COLLEAGUES), played.texts, strict=True))
    assert {name for name, text in texts.items() if GUEST in text} == set(asked)
    for agent, following in itertools.pairwise(asked):
        assert f"to the {following}" in texts[agent]
    answer = texts[asked[-1]].rpartition("\n")[2]
    assert answer.startswith("Answer: ") and answer.endswith(".")
    assert played.text.endswith(f"to the {asked[1]}\nThe {asked[-1]} says:{answer.removeprefix('Answer:')}")


PROMISES: dict[str, Callable[[Played], None]] = {
    promise.__name__: promise
    for promise in (
        *(code_act, plan, cite, reflexion, map_reduce, adaptive_vote, tree_of_thoughts, tree_search),
        *(hand_over,),
    )
}


#: with the MCP server, with the values of a model, and with messages to other runs
OF_MODELS = ("plan", "tree_of_thoughts", "hand_over")


@pytest.mark.slow
@pytest.mark.parametrize("path", tried(PROMISES, OF_MODELS), ids=lambda path: path.name)
def test_a_workflow_does_what_it_promises(engine: LlamaEngine, path: Path) -> None:
    PROMISES[path.stem](play(engine, Sample.read(path)))


@pytest.mark.parametrize("path", simulated(PROMISES, OF_MODELS), ids=lambda path: path.name)
def test_a_workflow_keeps_its_promise_with_a_simulated_model(playground: Playground, path: Path) -> None:
    PROMISES[path.stem](pretend(playground, path, TOOLS))


def test_each_sample_has_a_promise() -> None:
    stems = {language: [p.stem for p in SAMPLES if p.suffix == language] for language in LANGUAGES}
    assert sorted([*PROMISES, *test_samples.PROMISES]) == stems[".py"]
    assert set(stems[".js"]) <= set(stems[".py"])


def test_each_workflow_has_a_section_of_the_guide() -> None:
    page = (CONTROLLERS.parent / "docs" / "guide" / "workflows.md").read_text()
    assert re.findall(r"^Sample: `(\w+)`", page, re.MULTILINE) == list(PROMISES)


# -- with forced decisions -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["code_act.py", "code_act.js"])
def test_code_that_fails_is_written_again(playground: Playground, name: str) -> None:
    transcript = force(playground, name, " n*(2\n 9**9**9\n n*3\n n*2\n")
    errors = re.findall("^Error: (.*)$", transcript.text, re.MULTILINE)
    assert [error.removeprefix("ToolError: ") for error in errors] == [
        "SyntaxError: '(' was never closed",
        "it takes too long",
        "AssertionError",
    ]
    assert transcript.text.endswith("return n*2\n```\nAll checks pass.")
    assert transcript.variables["attempts"] == b"4"


def test_steps_of_a_plan_use_earlier_results(playground: Playground) -> None:
    wish = " multiply 3 12\n#2: add 1 2\n#3: add #1 #3 #2\n#1 = 36\n#2 = 3\n#3 = 39\nAnswer: 39"
    text = force(playground, "plan.py", wish).text
    # a step cannot name itself, so the model leaves "#3 " out
    assert text == "Plan:\n#1:" + wish.replace("#1 #3 #2", "#1 #2")


def test_a_plan_may_be_short(playground: Playground) -> None:
    assert force(playground, "plan.py", " add 1 2\n#2: finish\n#1 = 3\nAnswer: 3").text == (
        "Plan:\n#1: add 1 2\n#2: finish\n#1 = 3\nAnswer: 3"
    )


def test_a_quotation_ends_where_the_passage_does_not_go_on(playground: Playground) -> None:
    first, second = calculator.PASSAGES
    wish = f' tower bridge\n[1] {first}\n[2] {second}\n[2] "52 metres of gold\nSo it is high.\n'
    text = force(playground, "cite.py", wish).text
    found = re.match(r'So .* \[2: "(.*)"\]\.$', text, re.MULTILINE)
    assert found and found[1] in second and found[1].startswith("52 metres")


@pytest.mark.parametrize("name", ["map_reduce.py", "map_reduce.js"])
@pytest.mark.parametrize(("texts", "log"), [(1, ""), (2, "2 notes\n"), (5, "5 notes\n3 notes\n2 notes\n")])
def test_summaries_are_joined_until_one_is_left(
    playground: Playground, name: str, texts: int, log: str
) -> None:
    transcript = force(playground, name, " It is so.", [f"Text {i}." for i in range(texts)])
    assert transcript.log == log and transcript.text == transcript.variables["summary"].decode()


def test_only_the_lesson_of_a_failed_attempt_stays(playground: Playground) -> None:
    wish = (
        " town FROM towns WHERE people > 9\nThis query is wrong: ToolError: no such column: town.\n"
        "Lesson: The column is name.\n"
        "SELECT name FROM towns WHERE people > 200000\n"
    )
    transcript = force(playground, "reflexion.py", wish)
    assert transcript.log == "SELECT town FROM towns WHERE people > 9: ToolError: no such column: town\n"
    assert transcript.text == "SELECT name FROM towns WHERE people > 200000\nBonn"
    assert "{Lesson: The column is name.\nSELECT}" in transcript.history


#: ask the sample's function `decided` about each case of the argument, in place of its `main`
_DECISIONS = {
    ".py": (
        "from aici import arg\n"
        "FOUND = ''.join(['01'[decided(list(votes), left)] for votes, left in arg])\n"
        "async def main():\n    await force(FOUND)\n"
    ),
    ".js": (
        'import { arg } from "aici";\n'
        "const FOUND = arg.map(([votes, left]) => Number(decided([...votes], left))).join('');\n"
        "export async function main() { force(FOUND); }\n"
    ),
}


@pytest.mark.parametrize("name", ["adaptive_vote.py", "adaptive_vote.js"])
def test_voting_ends_exactly_when_nothing_can_change_the_result(playground: Playground, name: str) -> None:
    """All votes for three answers, with at most six votes, and all ways in which they may go on."""
    cases = [
        ("".join(votes), 6 - some) for some in range(1, 6) for votes in itertools.product("abc", repeat=some)
    ]

    def is_certain(votes: str, left: int) -> bool:
        """Returns whether the same answer is alone at the top, however the votes go on."""
        tops = set()
        for rest in itertools.product("abc", repeat=left):
            (first, most), (_, next_most) = Counter([*votes, *rest, *"abc"]).most_common(2)
            tops.add(first if most > next_most else "")
        return len(tops) == 1 and "" not in tops

    source = read(name).source.replace("export async function main", "async function unused")
    suffix = Path(name).suffix
    script = json.dumps({"script": source + _DECISIONS[suffix], "name": name, "arg": cases})
    transcript = playground.play(LANGUAGES[suffix], arg=script, max_tokens=1000)
    assert transcript.error is None
    assert transcript.text == "".join(str(int(is_certain(*case))) for case in cases)
    assert "1" in transcript.text
