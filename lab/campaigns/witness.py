"""A well-behaved request next to hostile ones: its answers and output must be those of a run alone."""

from __future__ import annotations

from aicirt.contract.abi import Verb
from lab.campaigns.validating_engine import Engine, Request

#: answers of each branch to compare; the request forks in its fourth step
STEPS = 12


class Witness:
    """Knows the answers of the request alone, and compares others with them."""

    def __init__(self, engine: Engine, module: str) -> None:
        """Runs the request alone. `module` is the id of a compiled ``lab/guests/witness.c``."""
        self._engine = engine
        self._module = module
        self.late = 0
        alone = self.start()
        while not self.done(alone):
            engine.step([alone])
        self._answers, self._log = _by_branch(alone), alone.log
        self._errors = [str(error) for error in alone.errors]
        alone.free()
        if self._errors or len(self._answers) != 2 or not all(self._log):
            raise RuntimeError(f"the witness does not work alone: {self._errors or self._answers}")

    def start(self) -> Request:
        """Starts a request. All requests are equal."""
        return Request(self._engine, self._module, "I saw it all", (84, 104, 101, 260, 270))

    def done(self, request: Request) -> bool:
        """Returns whether the request has enough answers to compare, or has ended."""
        answers = _by_branch(request)
        enough = len(answers) == 2 and all(len(answers[n]) >= STEPS for n in answers)
        return enough or not request.live

    def difference(self, request: Request) -> str | None:
        """Returns the first difference from the request that ran alone, in the answers so far, or None."""
        self.late += request.verbs.count(Verb.LATE)
        if request.errors:
            return f"the witness ended: {request.errors[0]!r}"
        answers = _by_branch(request)
        for number, found in answers.items():
            expected = self._answers.get(number, [])
            count = min(len(found), len(expected))
            if found[:count] != expected[:count]:
                return f"the masks of branch {number} differ: {found} instead of {expected}"
        for number, text in enumerate(request.log):
            whole = min(len(text), len(self._log[number]))
            if text[:whole] != self._log[number][:whole]:
                return f"the log of branch {number} differs: {text!r} instead of {self._log[number]!r}"
        return None


def _by_branch(request: Request) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for number, digest in request.answers:
        found.setdefault(number, []).append(digest)
    return found
