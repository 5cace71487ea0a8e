"""Functions that the tests run in SGLang's process. They take and return plain values."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import FINISH_ABORT

from aicirt.contract.errors import AiciError
from lab.system.waiting import PATIENCE
from pyaici import HfEngine
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.connection import Connection
from pyaici.engines.engine import Request, Sampling
from pyaici.engines.sglang import CAPABILITIES, plugin
from pyaici.engines.sglang.grammar import AiciGrammar
from tests.pyaici.engines.batching.support import BOS, byte_vocabulary, make_model
from tests.pyaici.engines.vllm.sglang.simulated import Scheduler, outcome, scheduler

PROMPT = b"Say something"
#: text, kind of end, message of an error
Outcome = tuple[bytes, str, str]


def called(controller: str, arg: Any = "") -> dict[str, str]:
    """Returns the parameter of a request with a controller."""
    return {"ebnf": json.dumps({"aici_controller": controller, "aici_arg": arg})}


def generate(requests: Sequence[Mapping[str, Any]], options: Mapping[str, Any] = {}) -> list[Outcome]:
    """Runs requests together, and returns their outcomes. No controller is left afterwards."""
    with scheduler(**options) as made:
        reqs = [made.add(PROMPT, **each) for each in requests]
        made.run(*reqs)
        assert live(made) == 0
        return [outcome(req) for req in reqs]


def live(made: Scheduler) -> int:
    """Returns the number of controllers that a scheduler has, drafts included."""
    found = 0
    for session in made.backend.controllers.sessions.values():
        session.sweep()
        found += len(session.rows._lines) + len(session.rows._stopped)
    return found


def generate_with_ours(controller: str, arg: str) -> tuple[bytes, str | None]:
    """Returns the text and the error of our own engine, with the same model and the same capabilities."""
    with Runtime(os.environ["AICI_SOCKET"]) as runtime:
        engine = HfEngine(make_model(), runtime=runtime, vocabulary=byte_vocabulary())
        request = Request([BOS, *PROMPT], controller, arg, sampling=Sampling(0.0), max_tokens=40)
        try:
            with patch.object(Request, "capabilities", CAPABILITIES):
                (first,) = engine.run([request])
        except AiciError as refusal:
            return b"", refusal.message
        text = bytes(token for token in first.new_tokens if token < 256)
        return text, None if first.error is None else first.error.message


def registered() -> tuple[list[str], bool, str]:
    """Returns SGLang's grammar backends, whether ours is the plugin's, and the backend of a command line."""
    from sglang.srt.constrained.base_grammar_backend import GRAMMAR_BACKEND_REGISTRY
    from sglang.srt.server_args import GRAMMAR_BACKEND_CHOICES, prepare_server_args

    ours = GRAMMAR_BACKEND_REGISTRY["aici"] is plugin.create_backend
    args = prepare_server_args(["--model-path", "dummy", "--grammar-backend", "aici"])
    return list(GRAMMAR_BACKEND_CHOICES), ours, args.grammar_backend


def start(options: Mapping[str, Any]) -> str:
    """Starts a scheduler with these options; returns why it refuses to, or an empty text."""
    from sglang.srt.runtime_context import get_parallel

    sizes = ("tp_size", "attn_tp_size", "moe_tp_size", "pp_size")
    parallel = {name: options[name] for name in sizes if name in options}
    others = {name: value for name, value in options.items() if name not in parallel}
    try:
        with get_parallel().override(**parallel), scheduler(**others):
            return ""
    except ValueError as error:
        return str(error)


def register_another_version(version: str) -> tuple[bool, str]:
    """Returns whether the backend is registered with another version of SGLang, and what is logged."""
    import importlib.metadata
    import logging

    from sglang.srt.constrained.base_grammar_backend import GRAMMAR_BACKEND_REGISTRY

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("sglang.aici")
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    before = GRAMMAR_BACKEND_REGISTRY.pop("aici")
    try:
        with patch.object(importlib.metadata, "version", lambda name: version):
            plugin.register()
        return "aici" in GRAMMAR_BACKEND_REGISTRY, " ".join(said)
    finally:
        GRAMMAR_BACKEND_REGISTRY["aici"] = before
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)


def upload_between(name: str, wasm: bytes) -> list[Outcome]:
    """Runs a request twice: before its controller has been uploaded and tagged, and afterwards."""
    with scheduler() as made:
        first = made.add(PROMPT, **called(name, "stop 3"))
        made.run(first)
        with Runtime(os.environ["AICI_SOCKET"]) as runtime:
            runtime.tag(runtime.upload(wasm).id, name)
        second = made.add(PROMPT, **called(name, "stop 3"))
        made.run(second)
        return [outcome(first), outcome(second)]


def kill_the_runtime() -> list[Outcome]:
    """Kills a private runtime while requests run; then the same requests run again."""
    socket = os.environ.pop("AICI_SOCKET")
    try:
        with scheduler() as made:
            free, regex = made.add(PROMPT), made.add(PROMPT, regex="[a-z ]{30}!")
            while len(regex.output_ids) < 5:
                made.step()
            (known,) = made.backend.controllers.sessions
            assert isinstance(known.daemon, Daemon)
            os.kill(known.daemon.pid, signal.SIGKILL)
            made.run(free, regex)
            again = made.add(PROMPT, regex="[a-z ]{30}!")
            made.run(again)
            return [outcome(req) for req in (free, regex, again)]
    finally:
        os.environ["AICI_SOCKET"] = socket


def abort() -> tuple[list[Outcome], int]:
    """Aborts a request whose grammar is being prepared, one that waits, and one that runs."""
    with scheduler() as made:
        preparing = made.add(PROMPT, regex="(a|b){3}x")
        preparing.grammar = Future()  # it never ends
        made.grammar_manager.abort_requests(_abort(preparing))
        waiting, running = made.add(PROMPT, regex="[a-z]{30}"), made.add(PROMPT, regex="[a-z ]{30}")
        while len(running.output_ids) < 5:
            made.step()
        waiting.set_finish_with_abort("Aborted by AbortReq.")
        running.to_finish = FINISH_ABORT("Aborted by AbortReq.")
        made.run(preparing, waiting, running)
        made.pending = None
        return [outcome(req) for req in (preparing, waiting, running)], live(made)


def _abort(req: Any) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(abort_all=False, rid=req.rid)


def prepare_again() -> tuple[list[bool], list[Outcome]]:
    """Runs a grammar three times. Returns whether each was ready at once, and the outcomes."""
    with scheduler() as made, patch.object(Connection, "_PLACE_SECONDS", PATIENCE):
        ready, ends = [], []
        for _ in range(3):
            req = made.add(PROMPT, regex="[xyz]{7}")
            ready.append(isinstance(req.grammar, AiciGrammar))
            made.run(req)
            ends.append(outcome(req))
        return ready, ends


def tool_constraints() -> dict[str, str]:
    """Returns for each of SGLang's tool parsers with a constraint why it is refused, or an empty text."""
    from sglang.srt.entrypoints.openai.protocol import Function, Tool, convert_json_schema_to_str
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [Tool(type="function", function=Function(name="weather", parameters=city, strict=True))]
    found: dict[str, str] = {}
    with scheduler() as made:
        for name in FunctionCallParser.ToolCallParserEnum:
            if name == "response_template":  # it needs a model's template
                continue
            parser = FunctionCallParser(tools, name, tokenizer=made.tokenizer)
            if (constraint := parser.get_structure_constraint("required")) is None:
                continue
            kind, value = constraint
            value = value.model_dump(by_alias=True) if kind == "structural_tag" else value
            req = made.add(PROMPT, **{kind: convert_json_schema_to_str(value)}, max_new_tokens=3)
            made.run(req)
            found[name] = outcome(req)[2]
    return found


def order_of_work(overlap: bool) -> list[str]:
    """Returns what happens in some iterations: passes, posted steps, and requests for masks."""
    done: list[str] = []

    def note(name: str, function: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            done.append(name)
            return function(*args, **options)

        return noted

    with scheduler(overlap=overlap) as made:
        reqs = [made.add(PROMPT, regex="[a-z ]{30}") for _ in range(3)]
        while any(len(req.output_ids) < 3 for req in reqs):
            made.step()
        with (
            patch.object(Runtime, "begin_step", note("post", Runtime.begin_step)),
            patch.object(Scheduler, "forward", note("pass", Scheduler.forward)),
            patch.object(Scheduler, "sample", note("masks", Scheduler.sample)),
        ):
            for _ in range(4):
                made.step()
    return done


def repeat_a_pass() -> Outcome:
    """Runs a request whose results are dropped once, as when SGLang retracts requests."""
    with scheduler() as made:
        req = made.add(PROMPT, regex="[a-z ]{20}!")
        while len(req.output_ids) < 5:
            made.step()
        made.settle()
        made.step()
        made.pending = None
        made.device[req.rid].pop()
        made.run(req)
        return outcome(req)


def copies_of_a_grammar() -> list[bytes]:
    """Copies a grammar before it starts and in the middle of a text; returns the masks of all, as bytes."""
    with scheduler() as made:
        req = made.add(PROMPT, regex="ab|ac")
        while req.grammar is None or isinstance(req.grammar, Future):
            made.next_batch()
        grammar = req.grammar
        fresh = grammar.copy()
        mask = grammar.allocate_vocab_mask(288, 4, "cpu")
        grammar.fill_vocab_mask(mask, 0)
        grammar.accept_token(ord("a"))
        middle = grammar.copy()
        grammar.fill_vocab_mask(mask, 1)
        grammar.accept_token(ord("b"))
        fresh.fill_vocab_mask(mask, 2)
        middle.fill_vocab_mask(mask, 3)
        return [bytes(row.numpy().tobytes()) for row in mask]


def think(reasoning: bool) -> Outcome:
    """Runs a request on a server with a reasoning parser; the model writes its thoughts if it reasons."""
    with scheduler(reasoning_parser="deepseek-r1") as made:
        req = made.add(PROMPT, reasoning=reasoning, regex="[0-9]{3}")
        made.dictated[req.rid] = [*b"hm </think>"] if reasoning else []
        made.run(req)
        return outcome(req)


def draft(seed: int, requests: Sequence[Mapping[str, Any]]) -> tuple[list[Outcome], int]:
    """Runs requests with drafts; returns the outcomes and the number of accepted drafts."""
    with scheduler(drafts=seed) as made:
        reqs = [made.add(PROMPT, **each) for each in requests]
        made.run(*reqs)
        assert live(made) == 0
        ends, accepted = [outcome(req) for req in reqs], sum(made.accepted)
        made.verify(reqs)  # SGLang follows drafts of requests that have just ended, too
        return ends, accepted


def prefill_elsewhere() -> Outcome:
    """Runs a request whose first token another server has sampled, as disaggregated servers do."""
    with scheduler(overlap=False) as made:
        req = made.add(PROMPT, regex="ab[cd]{5}")
        while req not in made.next_batch():
            pass
        req.output_ids.append(ord("a"))
        made.device[req.rid].append(ord("a"))
        req.grammar.accept_token(ord("a"))
        made.run(req)
        return outcome(req)


def owners(trusted: bool) -> list[Outcome]:
    """Runs a request that names an owner."""
    with patch.dict(os.environ, {"AICI_TRUST_OWNERS": "1" if trusted else "0"}):
        text = json.dumps({"aici_controller": "regex", "aici_arg": "a", "aici_owner": "alice"})
        return generate([{"ebnf": text}])
