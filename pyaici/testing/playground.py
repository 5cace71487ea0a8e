"""Plays engine for a controller: the real runtime, a pretended model."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from aicirt.contract.errors import ControllerError
from aicirt.vocab.tokenizer import load_tokenizer
from pyaici.capabilities import ALL, Capabilities
from pyaici.scripting.call import find_call
from pyaici.step import StepResult, Verb
from pyaici.steps import Step
from pyaici.testing.actor import Actor, Sampler
from pyaici.testing.recorder import RecordingRuntime
from pyaici.testing.recording import Recording
from pyaici.testing.transcript import Transcript
from pyaici.testing.vocabulary import small_vocabulary
from pyaici.testing.wish import Wish
from pyaici.tokens import Vocabulary
from pyaici.variables import by_name

#: rounds that a request may take for each token that it may write
_WORK_FACTOR = 10


class Playground:
    """Runs controllers in a real aicirt, with a pretended model (`Wish`). Use as a context manager.

    ::

        with Playground() as playground:
            transcript = playground.play("no_e.wasm", "the trees", arg="...")
            assert transcript.text == "th trs"
    """

    def __init__(
        self, vocabulary: Vocabulary | None = None, *, limits: Mapping[str, int] | None = None
    ) -> None:
        """`vocabulary`: default `small_vocabulary`. `limits`: as `Runtime` takes them."""
        self.vocabulary = vocabulary or small_vocabulary()
        tokenizer = self.vocabulary.tokenizer
        self.tokenize = load_tokenizer(tokenizer.kind, tokenizer.data, self.vocabulary.tokens)
        self.runtime = RecordingRuntime(workers=1, limits=limits)
        self._end = weakref.finalize(self, self.runtime.close)
        self.runtime.register(self.vocabulary)
        self._variables: dict[str, bytes] = {}

    def play(
        self,
        controller: str | Path,
        wish: str | bytes = "",
        *,
        arg: Any = b"",
        prompt: str | Sequence[int] = "",
        max_tokens: int = 200,
        temperature: float = 0.0,
        seed: int = 1,
        capabilities: Capabilities = ALL,
    ) -> Transcript:
        """One request from its prompt to its end; the model wants to write `wish`.

        `controller`: a .wasm file, the name of a bundled controller, whose `arg` is a text or bytes, or a
        script (.py, .js, .mjs), whose `arg` is any value of JSON. Forks are in `Transcript.forks`. An error
        that ends a sequence is in its `Transcript.error`. Raises what `find_call`, `Runtime.upload` and
        `Runtime.instantiate` raise: a module or an argument that is refused.
        """
        wasm, arg = find_call(controller, arg)
        module = self.runtime.upload(wasm).id
        tokens = self.tokenize(prompt.encode()) if isinstance(prompt, str) else list(prompt)
        first = self.runtime.instantiate(module, arg, tokens, capabilities=capabilities, seed=seed)
        sampler = Sampler(
            Wish(wish, self.vocabulary),
            self.vocabulary,
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            measure=self.runtime.wants_logprobs(first),
        )
        self._variables = {}
        everybody = [Actor(first, sampler, tokens)]
        live = {first: everybody[0]}
        try:
            for _ in range(_WORK_FACTOR * max_tokens):
                if live:
                    self._step(live, everybody)
        finally:
            self.runtime.free(live)
        transcripts = [actor.transcript() for actor in everybody]
        transcripts[0].forks = transcripts[1:]
        transcripts[0].variables = self._variables
        return transcripts[0]

    def record(
        self, controller: str | Path, wish: str | bytes = "", *, max_tokens: int = 200, **options: Any
    ) -> Recording:
        """As `play`, for a later `replay`: what the controller and the engine have said to each other.

        What the controller ends with is in the recording, a refusal of its argument too.
        """
        self.runtime.record(str(controller), max_tokens)
        with contextlib.suppress(ControllerError):
            self.play(controller, wish, max_tokens=max_tokens, **options)
        return self.runtime.take()

    def close(self) -> None:
        """Ends the runtime."""
        self._end()

    def __enter__(self) -> Playground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- one step -------------------------------------------------------------------------------

    def _step(self, live: dict[int, Actor], everybody: list[Actor]) -> None:
        """Brings every sequence of the request one step further."""
        step = self.runtime.begin_step([actor.take_report() for actor in live.values()])
        here = dict(live)
        self._before(step, live, here, everybody)
        result = step.wait()
        _keep_logs(result, here)
        for values in result.variables.values():
            self._variables.update(by_name(values))
        for seq in [seq for seq in live if seq in result.mid]:
            live[seq].act(result.mid[seq])
            if live[seq].reason is not None:
                self._finish(live.pop(seq), seq)

    def _before(
        self, step: Step, live: dict[int, Actor], here: dict[int, Actor], everybody: list[Actor]
    ) -> None:
        """What post_process and pre_process said; `here` gets the children that a fork makes."""
        for seq, verdict in step.wait_pre().items():
            actor = here[seq]
            if verdict.verb == Verb.FORK:
                for child in verdict.children:
                    here[child] = live[child] = actor.fork(child, len(everybody))
                    everybody.append(live[child])
            elif verdict.verb == Verb.SUSPEND:
                actor.suspended += 1
            else:
                actor.end("stop" if verdict.verb == Verb.STOP else "error", verdict.error)
                del live[seq]

    def _finish(self, actor: Actor, seq: int) -> None:
        """A sequence that the engine ends is told of its last token; the others the runtime has ended."""
        if actor.reason not in ("eos", "length"):
            return
        step = self.runtime.begin_step([actor.take_report()._replace(final=True)])
        result = step.wait()
        _keep_logs(result, {seq: actor})
        for values in result.variables.values():
            self._variables.update(by_name(values))


def _keep_logs(result: StepResult, actors: Mapping[int, Actor]) -> None:
    for seq, text in result.logs.items():
        if seq in actors:
            actors[seq].log += text
