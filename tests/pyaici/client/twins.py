"""Two requests that are told the same things, of which one moves: all that they answer must be the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.client.runtime import Runtime
from pyaici.client.step import MidResult, Row, StepResult

#: what tests/guests/mover.c does by the last token
COMMANDS = "xFSPMDTVRG"
#: so that nothing is late because a machine has no time, which one of them would be and the other not
LEISURE = {"step_deadline_ms": 20_000, "step_grace_ms": 20_000, "pre_ms": 50, "post_ms": 50, "mid_ms": 200}
#: more make steps longer, and say no more
_MOST_MEMBERS = 6


@dataclass
class Twin:
    """A request, and what each of its sequences, in the order of their birth, is told in the next step."""

    members: list[int]
    root: int
    news: dict[int, StepInput] = field(default_factory=dict)


class Twins:
    """Both of them."""

    def __init__(self, runtime: Runtime, argument: str, prompt: list[int]) -> None:
        self.runtime = runtime
        roots = [runtime.instantiate("mover", argument, prompt, seed=11) for _ in range(2)]
        self.twins = [Twin([root], root) for root in roots]

    @property
    def size(self) -> int:
        """Live sequences of each."""
        return len(self.twins[0].members)

    def move(self) -> None:
        """The first one, to the other worker."""
        runtime, seq = self.runtime, self.twins[0].members[-1]
        before = runtime._live.link(seq)
        runtime.move(seq)
        assert all(runtime._live.link(member) is not before for member in self.twins[0].members)

    def clone(self, place: int) -> None:
        """As the engine does."""
        place %= self.size
        for twin in self.twins if self.size < _MOST_MEMBERS else ():
            parent = twin.members[place]
            child = self.runtime.clone(parent)
            twin.members.append(child)
            if parent in twin.news:  # the engine has not told yet what has become of a splice
                twin.news[child] = twin.news[parent]._replace(seq=child)

    def free(self, place: int) -> None:
        """One of several."""
        if self.size > 1:
            place %= self.size
            for twin in self.twins:
                self.runtime.free([twin.members.pop(place)])

    def step(self, commands: list[str], skip: int | None = None) -> None:
        """Tells each member a command (in turn); one may sit the step out. Compares all answers."""
        inputs: list[StepInput] = []
        # all look at the variable: who is interrupted, if only by a busy machine, sees what others write,
        # so one that writes steps alone
        writer = commands.index("V") if "V" in commands[: self.size] else None
        for twin in self.twins:
            for place, seq in enumerate(twin.members):
                command = commands[place % len(commands)]
                full = command == "F" and self.size >= _MOST_MEMBERS
                if full or (command == "R" and seq != twin.root):  # copies are seeded by their numbers
                    command = "x"
                if place == writer or (writer is None and (place != skip or self.size == 1)):
                    token = ord(command)
                    inputs.append(twin.news.pop(seq, None) or StepInput(seq, [token], sampled=True))
        step = self.runtime.begin_step(inputs)
        pre = step.wait_pre()
        result = step.wait()
        asked = {item.seq for item in inputs}
        seen: list[list[Any]] = []
        for twin in self.twins:
            told = []
            for seq in list(twin.members):
                if seq not in asked:
                    continue
                verdict = pre.get(seq)
                told.append([verdict.verb if verdict else None, self._answer(twin, seq, result)])
                for child in verdict.children if verdict else []:
                    twin.members.append(child)
                    told.append(["child", self._answer(twin, child, result)])
            seen.append(told)
        assert seen[0], "somebody has answered"
        for one, other in zip(*seen, strict=True):
            assert one == other, f"{one}\n{other}"

    def _answer(self, twin: Twin, seq: int, result: StepResult) -> Any:
        answer = result.mid.get(seq)
        if answer is not None and answer.verb == Verb.SPLICE:
            twin.news[seq] = StepInput(seq, answer.ff_tokens, answer.backtrack)
        return content(answer), result.logs.get(seq)

    def close(self) -> None:
        """Ends both."""
        for twin in self.twins:
            self.runtime.free(twin.members)


def content(answer: MidResult | None) -> Any:
    """All that is in an answer, to compare."""
    if answer is None:
        return None
    assert answer.error is None, answer.error
    return answer.verb, answer.backtrack, answer.ff_tokens, answer.row and _content(answer.row)


def _content(row: Row) -> Any:
    arrays = [None if part is None else part.tobytes() for part in (row.bits, row.tokens, row.bias)]
    return row.kind, row.token, row.default, arrays, row.temperature, row.top_k
