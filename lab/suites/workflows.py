"""Agents with tools, done by one controller and by a client in turns, on the same server.

The client does it as well as can be done today: the official `openai` client with a kept connection, prefix
caching, guided decoding, one request for each turn, and all tools of a turn at the same time. Both write the
same decisions, which a pattern forces; the thoughts between them are the model's. Some workflows are made up,
others are conversations of the Berkeley Function-Calling Leaderboard with its tools.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

import openai
from prometheus_client.parser import text_string_to_metric_families

from lab.inputs.bfcl import Conversation, conversations
from lab.measurement.timing import alternate, summarise
from lab.report import Report
from lab.servers.server_process import serving
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request
from pyaici.models import default_gguf_path
from pyaici.rest import RestClient

#: milliseconds that a tool takes, and users at the same time
_TOOLS, _QUICK_TOOLS = (0, 50, 500), (0,)
#: quick: several users for the first workflow alone
_USERS, _QUICK_USERS = (1, 8), (1, 2)
#: with one user, and with several
_ROUNDS, _MORE_ROUNDS, _QUICK_ROUNDS = 2, 1, 1
_ECHOES, _QUICK_ECHOES = 500, 20
#: branches on a trunk of so many tokens, each of about so many characters
_BRANCHES, _TRUNK, _QUICK_TRUNK, _BRANCH = 4, 7400, 400, 60
#: conversations, each done once in either way; none is begun after so many minutes
_DIALOGUES, _MINUTES = 3, 18


@dataclass(frozen=True)
class Turn:
    """A part of an agent's work: it writes, then everything that it has called is there."""

    #: what it is asked first, "" if nothing
    question: str
    #: patterns of a thought and a call, and what each call is about
    patterns: list[str]
    items: list[str]


@dataclass(frozen=True)
class Plan:
    """The whole work of one or several agents with the same prompt."""

    prompt: str
    turns: list[Turn]
    #: that work side by side
    agents: int
    #: answers a call about an item
    tool: Callable[[str], str]


class Work(Protocol):
    """Makes plans: each work has tools of its own."""

    def plan(self, customer: int, milliseconds: float) -> Plan:
        """Returns the plan of the work for a customer, whose tools take so long."""


@dataclass(frozen=True)
class Workflow:
    """Turns of a thought and calls, then an answer; a tool looks up prices."""

    turns: int
    #: calls in each turn
    calls: int
    #: characters of a thought
    thought: int = 40
    #: agents that work side by side from the same prompt
    agents: int = 1

    @property
    def short(self) -> Workflow:
        """The same with fewer turns and agents."""
        return replace(self, turns=min(self.turns, 2), agents=min(self.agents, 8), thought=5)

    def plan(self, customer: int, milliseconds: float) -> Plan:
        """See `Work.plan`."""
        turns = []
        for number in range(self.turns):
            items = [str(100 + 10 * number + call) for call in range(self.calls)]
            turns.append(Turn("", [_pattern(self.thought, item) for item in items], items))
        return Plan(
            f"You serve customer {customer}. {_PROMPT}", turns, self.agents, partial(_price, milliseconds)
        )


@dataclass(frozen=True)
class Dialogue:
    """A conversation of the leaderboard: questions, each with a thought and a call after another."""

    conversation: Conversation

    def plan(self, customer: int, milliseconds: float) -> Plan:
        """See `Work.plan`."""
        call = self.conversation.start()

        def tool(item: str) -> str:
            time.sleep(milliseconds / 1000)
            return call(item)

        turns = []
        for question, calls in self.conversation.turns:
            asked = [f"User: {question}\n", *[""] * (len(calls) - 1)]
            turns += [
                Turn(asked, [_pattern(20, item)], [item]) for asked, item in zip(asked, calls, strict=True)
            ]
        prompt = f"You serve customer {customer} with these tools:\n{self.conversation.tools}"
        return Plan(prompt, turns, 1, tool)


def _pattern(thought: int, item: str) -> str:
    """Returns the pattern of a thought of some characters, and of the call after it."""
    return f" [a-z ]{{{thought},{thought + 20}}}\\nCall: {re.escape(item)}\\n"


def _price(milliseconds: float, item: str) -> str:
    time.sleep(milliseconds / 1000)
    return f"item {item} costs {int(item) * 7 % 1000}"


_PARALLEL = Workflow(turns=3, calls=4)
#: ReAct, code-act and the swarm have the sizes with which Pie (SOSP 2025) was measured
WORKFLOWS = {
    "react": Workflow(turns=8, calls=1),
    "codeact": Workflow(turns=8, calls=1, thought=120),
    "parallel": _PARALLEL,
    "swarm": Workflow(turns=1, calls=1, agents=32),
}
_PROMPT = "You look up items of a shop until you know the answer. Write what you think, then the item.\n"

SCRIPT = """
from aici import *

for turn in arg["turns"]:
    turn["patterns"] = [regex(pattern) for pattern in turn["patterns"]]

async def work(agent):
    found = ""
    for turn in arg["turns"]:
        if found + turn["question"]:
            await force(found + turn["question"])
        calls = []
        for pattern, item in zip(turn["patterns"], turn["items"]):
            await gen(pattern)
            asked = call("tool", item)
            if arg["late"]:
                await asked
            calls.append(asked)
        found = ""
        for asked in calls:
            found += "Found: " + await asked + "\\n"
    return found

async def main():
    if arg["agents"] > 1:
        found = ""
        for first in range(0, arg["agents"], 8):
            await gather(*[lambda i=i: work(i) for i in range(first, first + 8)])
    else:
        found = await work(0)
    await force(found + "Answer: ")
    await gen(regex="[0-9]{3}")
"""


@dataclass
class Counts:
    """The requests of the work of all users."""

    requests: int = 0
    #: tokens of the prompts of all requests
    prompt_tokens: int = 0


#: each work is that of another customer, so that the cache has no text of an earlier one
_CUSTOMERS = itertools.count(1000)
#: does the work of a user with the server at this address, and adds what it took
Way = Callable[[str, Plan, Counts], None]


def run(report: Report) -> None:
    """Runs each workflow both ways, alternated, on llama.cpp with prefix caching."""
    works: dict[str, Work] = {**WORKFLOWS}
    for dialogue in conversations(1 if report.quick else _DIALOGUES):
        works[dialogue.name.removeprefix("multi_turn_")] = Dialogue(dialogue)
    ratios: list[float] = []
    throughputs: list[float] = []
    end = time.monotonic() + 60 * _MINUTES
    with serving("--model", str(default_gguf_path())) as url:
        first = WORKFLOWS["react"].short.plan(next(_CUSTOMERS), 0)
        for way in (_by_controller, _by_client):  # for the first time, it is slower
            way(url, first, Counts())
        for name, work in works.items():
            if report.quick and isinstance(work, Workflow):
                work = work.short
            for milliseconds in _QUICK_TOOLS if report.quick else _TOOLS:
                for users in _QUICK_USERS[: 1 if ratios else 2] if report.quick else _USERS:
                    place = f"workflows.{name}.t{milliseconds}.u{users}"
                    if isinstance(work, Dialogue) and time.monotonic() > end:
                        report.not_tried(place, f"{_MINUTES} minutes have passed")
                        continue
                    ratio = _compare(report, place, url, work, milliseconds, users)
                    (ratios if users == 1 else throughputs).append(ratio)
        _overlap(report, url, _PARALLEL.short if report.quick else _PARALLEL)
    report.figure("workflows.latency_ratio", _geometric(ratios), "ratio", target=0.6)
    report.figure("workflows.throughput_ratio", 1 / _geometric(throughputs), "ratio", target=1.5)
    with (
        LlamaModel(load_library(), default_gguf_path()) as model,
        Runtime() as runtime,
        # each fork claims room for the whole trunk, although all share it
        LlamaEngine(model, runtime, cache_tokens=(_BRANCHES + 2) * _TRUNK) as engine,
    ):
        _roundtrip(report, engine)
        _branches(report, engine)


def _compare(report: Report, place: str, url: str, work: Work, milliseconds: float, users: int) -> float:
    """Does the work both ways; returns the time of the controller relative to the client."""
    ways: dict[str, Way] = {"controller": _by_controller, "client": _by_client}
    counts = {who: Counts() for who in ways}
    tokens = {who: Counter[str]() for who in ways}

    def timed(who: str) -> float:
        counts[who] = Counts()
        plans = [work.plan(next(_CUSTOMERS), milliseconds) for _ in range(users)]
        before = _metrics(url)
        with ThreadPoolExecutor(users) as threads:
            start = time.perf_counter()
            for done in [threads.submit(ways[who], url, plan, counts[who]) for plan in plans]:
                done.result()
            seconds = time.perf_counter() - start
        tokens[who] = _metrics(url)
        tokens[who].subtract(before)
        return seconds

    contestants = {who: partial(timed, who) for who in ways}
    found = alternate(contestants, _rounds(report, work, users), warmup=0)
    for who, seconds in found.items():
        report.figure(f"{place}.{who}_s", summarise(seconds).median, "s")
        report.figure(f"{place}.{who}.round_trips", counts[who].requests / users, "requests")
        cached, written = tokens[who]["reused"], tokens[who]["sampled"] + tokens[who]["forced"]
        again = tokens[who]["read_again"]
        report.figure(f"{place}.{who}.tokens", counts[who].prompt_tokens - cached + written + again, "tokens")
        report.figure(f"{place}.{who}.tokens_from_cache", cached, "tokens")
    report.figure(f"{place}.tokens_reread", tokens["controller"]["read_again"], "tokens", target=0)
    ratio = summarise(
        [ours / theirs for ours, theirs in zip(found["controller"], found["client"], strict=True)]
    ).median
    report.figure(f"{place}.ratio", ratio, "ratio")
    return ratio


def _rounds(report: Report, work: Work, users: int) -> int:
    if report.quick:
        return _QUICK_ROUNDS
    return _ROUNDS if users == 1 and isinstance(work, Workflow) else _MORE_ROUNDS


def _metrics(url: str) -> Counter[str]:
    """Returns the engine's counts of tokens."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = {
        sample.name: int(sample.value)
        for family in families
        for sample in family.samples
        if not sample.labels
    }
    names = ("sampled", "forced", "reused", "read_again")
    return Counter({name: found[f"aici_engine_{name}_tokens_total"] for name in names})


def _geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _by_controller(url: str, plan: Plan, counts: Counts, late: bool = False) -> None:
    argument = {"turns": [asdict(turn) for turn in plan.turns], "agents": plan.agents, "late": late}
    script = {"language": "python", "source": SCRIPT, "arg": argument}
    with RestClient(url) as client:
        for event in client.run(
            calls={"tool": plan.tool},
            script=script,
            prompt=plan.prompt,
            max_tokens=2000 // max(1, plan.agents // 8),
        ):
            end: Mapping[str, Any] = event
    problem = end["forks"][0]["error"]
    if problem is not None:
        raise RuntimeError(problem["message"])
    counts.requests += 1
    counts.prompt_tokens += end["usage"]["prompt_tokens"]
    _check(str(end["forks"][0]["text"]), plan)


def _by_client(url: str, plan: Plan, counts: Counts) -> None:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ThreadPoolExecutor(16) as threads,
    ):

        def complete(prompt: str, pattern: str) -> str:
            body = {"regex": pattern}
            answer = client.completions.create(
                model="default", prompt=prompt, max_tokens=500, temperature=0, extra_body=body
            )
            assert answer.usage is not None
            counts.requests += 1
            counts.prompt_tokens += answer.usage.prompt_tokens
            return answer.choices[0].text

        def work(prompt: str) -> str:
            for turn in plan.turns:
                prompt += turn.question
                prompt += complete(prompt, "".join(turn.patterns))
                for found in threads.map(plan.tool, turn.items):
                    prompt += f"Found: {found}\n"
            return prompt

        if plan.agents > 1:
            with ThreadPoolExecutor(8) as agents:  # each in a request of its own; the cache has the prompt
                list(agents.map(lambda _: work(plan.prompt), range(plan.agents)))
            text = ""
        else:
            text = work(plan.prompt)[len(plan.prompt) :]
        answer = complete(f"{plan.prompt}{text}Answer: ", "[0-9]{3}")
    _check(f"{text}Answer: {answer}", plan)


def _check(text: str, plan: Plan) -> None:
    """Raises RuntimeError if a decision or an answer of a tool is missing from a text."""
    for turn in plan.turns if plan.agents == 1 else ():
        for item in turn.items:
            if f"Call: {item}\nFound: " not in text and len(turn.items) == 1:
                raise RuntimeError(f"the text lacks {item}:\n{text}")
    if not re.search(r"Answer: [0-9]{3}$", text):
        raise RuntimeError(f"the text has no answer:\n{text}")


def _overlap(report: Report, url: str, workflow: Workflow) -> None:
    """Compares calls that begin when they are written with calls that are awaited one by one."""
    plan = workflow.plan(0, 50 if report.quick else 200)
    found = alternate(
        {
            "early": lambda: _by_controller(url, plan, Counts()),
            "late": lambda: _by_controller(url, plan, Counts(), late=True),
        },
        _rounds(report, workflow, 1),
    )
    gains = [late / early for late, early in zip(found["late"], found["early"], strict=True)]
    report.figure("workflows.overlap_gain", summarise(gains).median, "ratio", target=1.25)


def _roundtrip(report: Report, engine: LlamaEngine) -> None:
    """Measures the time from a call whose answer is there at once to the controller's next step."""
    count = _QUICK_ECHOES if report.quick else _ECHOES
    source = (
        "from aici import *\n"
        "async def main():\n"
        "    await force('x')\n"
        "    for i in range(arg):\n"
        "        await call('echo', i)\n"
    )

    def seconds(calls: int) -> float:
        arg = json.dumps({"script": source, "name": "echo.py", "arg": calls})
        return _timed(
            engine, [Request("Hello", controller="pyctrl", arg=arg, calls={"echo": lambda value: value})]
        )

    seconds(1)
    report.figure("call.roundtrip_us", 1e6 * (seconds(count) - seconds(0)) / count, "us")


def _timed(engine: LlamaEngine, requests: list[Request]) -> float:
    """Returns the seconds of these requests together. Raises the error of the first that fails."""
    start = time.perf_counter()
    for result in engine.run(requests):
        if result.error is not None:
            raise result.error
    return time.perf_counter() - start


_FORKS = """
from aici import *

pattern = regex(arg["pattern"])

async def branch(number):
    await force(f"Answer {number}:")
    await gen(pattern)

async def main():
    await gather(*[lambda number=number: branch(number) for number in range(arg["branches"])])
"""


def _branches(report: Report, engine: LlamaEngine) -> None:
    """Compares forks on a long trunk with as many requests that have the trunk as their prompt."""
    encode = engine.tokenizer.encode
    pattern = f" [a-z ]{{{_BRANCH}}}"
    script = {"script": _FORKS, "name": "forks.py", "arg": {"pattern": pattern, "branches": _BRANCHES}}
    size = _QUICK_TRUNK if report.quick else _TRUNK
    goods = "\n".join(_price(0, str(item)) for item in range(size))
    # the cache has no text of the other contestant
    forked, asked = (encode(f"You serve customer {next(_CUSTOMERS)}.\n{goods}")[:size] for _ in range(2))
    contestants = {
        "forks": [Request(forked, controller="pyctrl", arg=json.dumps(script), max_tokens=200)],
        "requests": [
            Request([*asked, *encode(f"Answer {number}:")], controller="regex", arg=pattern, max_tokens=200)
            for number in range(_BRANCHES)
        ],
    }
    seconds = {}
    for who, requests in contestants.items():
        before = replace(engine.stats)
        seconds[who] = _timed(engine, requests)
        report.figure(f"branches.{who}_s", seconds[who], "s")
        report.figure(f"branches.{who}.passes", engine.stats.steps - before.steps, "passes")
        tokens = sum(len(request.prompt) for request in requests) - engine.stats.reused + before.reused
        for name in ("sampled", "forced", "read_again"):
            tokens += getattr(engine.stats, name) - getattr(before, name)
        report.figure(f"branches.{who}.tokens", tokens, "tokens")
    report.figure("branches.gain", seconds["requests"] / seconds["forks"], "ratio")
