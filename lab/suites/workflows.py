"""Agents with tools, done by one controller and by a client in turns, on the same server.

The client does it as well as can be done today: the official `openai` client with a kept connection, prefix
caching, guided decoding, one request for each turn, and all tools of a turn at the same time. Both write the
same decisions, which a pattern forces; the thoughts between them are the model's.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import openai

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
_USERS, _QUICK_USERS = (1, 8), (1,)
_ROUNDS, _QUICK_ROUNDS = 5, 1
_ECHOES, _QUICK_ECHOES = 500, 20


@dataclass(frozen=True)
class Workflow:
    """An agent's work: turns of a thought and calls, then an answer."""

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

    def pattern(self, turn: int, call: int) -> str:
        """Returns the pattern of a thought and the call after it."""
        return f" [a-z ]{{{self.thought},{self.thought + 20}}}\\nLook up: {key(turn, call)}\\n"


#: ReAct, code-act and the swarm have the sizes with which Pie (SOSP 2025) was measured
WORKFLOWS = {
    "react": Workflow(turns=8, calls=1),
    "codeact": Workflow(turns=8, calls=1, thought=120),
    "parallel": Workflow(turns=3, calls=4),
    "swarm": Workflow(turns=1, calls=1, agents=32),
}
_PROMPT = "You look up items of a shop until you know the answer. Write what you think, then the item.\n"

SCRIPT = """
from aici import *

async def work(agent):
    for turn, patterns in enumerate(argument["patterns"]):
        calls = []
        for number, pattern in enumerate(patterns):
            await gen(pattern)
            asked = call("look_up", item=argument["keys"][turn][number])
            if argument["late"]:
                await asked
            calls.append(asked)
        for asked in calls:
            await fixed("Found: " + await asked + "\\n")

patterns = [[regex(pattern) for pattern in patterns] for patterns in argument["patterns"]]
argument["patterns"] = patterns

async def main():
    if argument["agents"] > 1:
        for first in range(0, argument["agents"], 8):
            await gather(*[lambda i=i: work(i) for i in range(first, first + 8)])
    else:
        await work(0)
    await fixed("Answer: ")
    await gen(regex="[0-9]{3}")
"""


def key(turn: int, call: int) -> str:
    """Returns the item that a call looks up."""
    return str(100 + 10 * turn + call)


class Tool:
    """Looks up an item, which takes so many milliseconds."""

    def __init__(self, milliseconds: float) -> None:
        self._seconds = milliseconds / 1000

    def __call__(self, item: str) -> str:
        if self._seconds:
            time.sleep(self._seconds)
        return f"item {item} costs {int(item) * 7 % 1000}"


def run(report: Report) -> None:
    """Runs each workflow both ways, alternated, on llama.cpp with prefix caching."""
    rounds = _QUICK_ROUNDS if report.quick else _ROUNDS
    path = str(default_gguf_path())
    ratios: list[float] = []
    throughputs: list[float] = []
    with serving("--model", path) as url:
        for name, workflow in WORKFLOWS.items():
            if report.quick:
                workflow = workflow.short
            for milliseconds in _QUICK_TOOLS if report.quick else _TOOLS:
                tool = Tool(milliseconds)
                for users in _QUICK_USERS if report.quick else _USERS:
                    both = {
                        "controller": partial(_by_controller, url, workflow, tool),
                        "client": partial(_by_client, url, workflow, tool),
                    }
                    found = alternate(
                        {who: partial(_times, work, users) for who, work in both.items()}, rounds
                    )
                    pairs = zip(found["controller"], found["client"], strict=True)
                    ratio = summarise([ours / theirs for ours, theirs in pairs]).median
                    place = f"workflows.{name}.t{milliseconds}.u{users}"
                    for who, seconds in found.items():
                        report.figure(f"{place}.{who}_s", summarise(seconds).median, "s")
                    report.figure(f"{place}.ratio", ratio, "ratio")
                    (ratios if users == 1 else throughputs).append(ratio)
        parallel = WORKFLOWS["parallel"]
        _overlap(report, url, rounds, parallel.short if report.quick else parallel)
    report.figure("workflows.latency_ratio", _geometric(ratios), "ratio", target=0.6)
    if throughputs:
        report.figure("workflows.throughput_ratio", 1 / _geometric(throughputs), "ratio", target=1.5)
    _roundtrip(report)


def _geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _times(work: Callable[[int], None], users: int) -> float:
    """Returns the seconds until the work of so many users is done."""
    start = time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def _by_controller(url: str, workflow: Workflow, tool: Tool, user: int, late: bool = False) -> None:
    argument = {
        "patterns": [
            [workflow.pattern(turn, call) for call in range(workflow.calls)] for turn in range(workflow.turns)
        ],
        "keys": [[key(turn, call) for call in range(workflow.calls)] for turn in range(workflow.turns)],
        "agents": workflow.agents,
        "late": late,
    }
    script = {"language": "python", "source": SCRIPT, "arg": argument}
    with RestClient(url) as client:
        for event in client.run(
            calls={"look_up": tool},
            script=script,
            prompt=_prompt(user),
            max_tokens=2000 // max(1, workflow.agents // 8),
        ):
            end: Mapping[str, Any] = event
    problem = end["forks"][0]["error"]
    if problem is not None:
        raise RuntimeError(problem["message"])
    _check(str(end["forks"][0]["text"]), workflow)


def _by_client(url: str, workflow: Workflow, tool: Tool, user: int) -> None:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ThreadPoolExecutor(16) as threads,
    ):

        def complete(prompt: str, pattern: str) -> str:
            body = {"regex": pattern}
            answer = client.completions.create(
                model="default", prompt=prompt, max_tokens=500, temperature=0, extra_body=body
            )
            return answer.choices[0].text

        def work(prompt: str) -> str:
            for turn in range(workflow.turns):
                calls = range(workflow.calls)
                prompt += complete(prompt, "".join(workflow.pattern(turn, call) for call in calls))
                for found in threads.map(tool, [key(turn, call) for call in calls]):
                    prompt += f"Found: {found}\n"
            return prompt

        prompt = _prompt(user)
        if workflow.agents > 1:
            with ThreadPoolExecutor(8) as agents:  # each in a request of its own; the cache has the prompt
                list(agents.map(lambda _: work(prompt), range(workflow.agents)))
            text = ""
        else:
            text = work(prompt)[len(prompt) :]
        answer = complete(f"{prompt}{text}Answer: ", "[0-9]{3}")
    _check(f"{text}Answer: {answer}", workflow)


def _prompt(user: int) -> str:
    return f"You serve customer {user}. {_PROMPT}"


def _check(text: str, workflow: Workflow) -> None:
    """Raises RuntimeError if a decision or an answer of a tool is missing from a text."""
    for turn in range(workflow.turns if workflow.agents == 1 else 0):
        for call in range(workflow.calls):
            if f"Look up: {key(turn, call)}\n" not in text or f"Found: item {key(turn, call)} " not in text:
                raise RuntimeError(f"the text lacks item {key(turn, call)}:\n{text}")


def _overlap(report: Report, url: str, rounds: int, workflow: Workflow) -> None:
    """Compares calls that begin when they are written with calls that are awaited one by one."""
    tool = Tool(50 if report.quick else 200)
    found = alternate(
        {
            "early": lambda: _by_controller(url, workflow, tool, 0),
            "late": lambda: _by_controller(url, workflow, tool, 0, late=True),
        },
        rounds,
    )
    gains = [late / early for late, early in zip(found["late"], found["early"], strict=True)]
    report.figure("workflows.overlap_gain", summarise(gains).median, "ratio", target=1.25)


def _roundtrip(report: Report) -> None:
    """Measures the time from a call whose answer is there at once to the controller's next step."""
    count = _QUICK_ECHOES if report.quick else _ECHOES
    source = (
        "from aici import *\n"
        "async def main():\n"
        "    await fixed('x')\n"
        "    for i in range(argument):\n"
        "        await call('echo', i)\n"
    )
    with (
        LlamaModel(load_library(), default_gguf_path()) as model,
        Runtime() as runtime,
        LlamaEngine(model, runtime) as engine,
    ):

        def seconds(calls: int) -> float:
            arg = json.dumps({"script": source, "name": "echo.py", "arg": calls})
            start = time.perf_counter()
            (result,) = engine.run(
                [Request("Hello", module="pyctrl", arg=arg, calls={"echo": lambda value: value})]
            )
            if result.error is not None:
                raise result.error
            return time.perf_counter() - start

        seconds(1)
        report.figure("call.roundtrip_us", 1e6 * (seconds(count) - seconds(0)) / count, "us")
