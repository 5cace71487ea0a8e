"""The worker's main loop: one thread serves clients, the supervisor and all guests in turn."""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aicirt.contract.abi import (
    CAP_CALLS,
    CAP_DRAFTS,
    CAP_MAX_FORKS,
    CAP_TOKENIZER,
    CAP_TOP_LOGPROBS,
    MAX_DRAFTS,
    PROMPT,
    Export,
)
from aicirt.contract.errors import MALFORMED, AiciError, ControllerFailed, ProtocolError, RuntimeFailure
from aicirt.contract.messages import (
    CLONE,
    CLONED,
    DUE,
    FREE,
    OPERATION,
    START,
    STARTED,
    STEP,
    Clone,
    Cloned,
    Due,
    Free,
    Start,
    Started,
    StepRequest,
)
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import SAMPLING_SECONDS, CpuPlacement, Doorbell, spin
from aicirt.settings import IDLE_WAIT_SECONDS, MAX_SPARES, RequestLimits, WorkerSettings
from aicirt.system.logs import fields
from aicirt.system.shortage import describe
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.fiber import Fiber, Ticker
from aicirt.wasm.host import GuestExit
from aicirt.worker.client import Client
from aicirt.worker.hostapi import GuestContext, LoadedVocabulary, warn
from aicirt.worker.memory import GuestMemory
from aicirt.worker.owners import Owners, RequestState
from aicirt.worker.scheduling import Agenda, Listener, Meter, Work
from aicirt.worker.sequence import Sequence
from aicirt.worker.steps import Resources, StepWork
from aicirt.worker.templates import Profiles, Templates
from aicirt.worker.waits import CallDesk, Waits

_log = logging.getLogger("aicirt.worker")
#: new objects after which garbage is collected: between rounds, not at Python's own thresholds
_GARBAGE = 20_000


class Worker:
    """The state of a worker process, and its main loop."""

    def __init__(
        self,
        bell: Doorbell,
        listener: Listener,
        supervisor: FrameSocket,
        engine: WasmEngine,
        ticker: Ticker,
        limits: RequestLimits,
        settings: WorkerSettings,
    ) -> None:
        """`supervisor`: the control socket, whose calls `serve_call` gets."""
        self.supervisor = supervisor
        self.engine = engine
        self.limits = limits
        self.settings = settings
        self.clients: dict[int, Client] = {}
        self.agenda = Agenda()
        self.templates = Templates(settings)
        self.running = True
        #: serves a call of the supervisor; set before `run` (`aicirt.worker.process.Controls`)
        self.serve_call: Callable[[list[Any]], None]
        self.meter = Meter()
        self.steps = 0
        #: number of sequences that clients have asked to start
        self.asked = 0
        #: counters of clients that have gone, and of events without a client
        self.past: Counter[str] = Counter()
        self.owners = Owners(settings, self.past)
        self.waits = Waits()
        self.calls = CallDesk()
        self.memory = GuestMemory(settings, self._sequences, engine.reaper)
        self.profiles = Profiles(self.templates, self.memory, self.agenda)
        self._resources = Resources(
            *(settings, limits, engine, ticker, self.agenda, self.owners, self.memory, self.profiles),
            self.waits,
        )
        #: engine, whether the tokenizer is exact, and result of the last `guest_capabilities`
        self._capabilities: tuple[list[list[int]] | None, bool, dict[int, int]] = None, False, {}
        self._bell = bell
        self._listener = listener
        self._placement = CpuPlacement()
        self._ticker = ticker
        engine.wanted = self._wanted
        engine.warn = warn
        engine.spares.limit = MAX_SPARES

    @property
    def num_sequences(self) -> int:
        """Live sequences of all clients."""
        return sum(len(client.sequences) for client in self.clients.values())

    def _sequences(self) -> Iterator[Sequence]:
        return (seq for client in self.clients.values() for seq in client.sequences.values())

    def run(self) -> None:
        """Serves until the supervisor stops the worker or has gone."""
        gc.disable()
        gc.freeze()  # permanent objects need no scan while guests wait
        while self.running:
            self.run_round()
            if gc.get_count()[0] > _GARBAGE:
                gc.collect()
        for number in list(self.clients):
            self.detach(number)

    def run_round(self) -> None:
        """Waits for the bell or a deadline, then serves until there is nothing left to do."""
        self._placement.avoid_processors(client.from_client.writer_cpu for client in self.clients.values())
        called = not self._bell.rung
        called = self._bell.wait_for_ring(self._timeout()) and called
        self._placement.restore()
        # armed during all work, because guests may run in any part of it
        with self._ticker:
            busy = self._serve()
            if called and not busy:
                busy = self._expect_step()
            while (busy or self._listener.dismiss()) and self.running:
                busy = self._serve()

    def detach(self, number: int) -> None:
        """Frees a client that has gone, and keeps its counters."""
        client = self.clients.pop(number, None)
        if client is not None:
            self.past.update(client.counters)
            client.close()

    @property
    def counters(self) -> Counter[str]:
        """Counters of sequences of all clients, including clients that have gone."""
        return sum((client.counters for client in self.clients.values()), self.past)

    def guest_capabilities(self, engine: list[list[int]], vocabulary: LoadedVocabulary) -> dict[int, int]:
        """Returns the engine's capabilities and those that the runtime adds.

        Sequences of the same engine share the result.
        """
        known, exact, capabilities = self._capabilities
        if known == engine and exact == vocabulary.exact:
            return capabilities
        capabilities = {number: int(value) for number, value in engine}
        capabilities[CAP_TOP_LOGPROBS] = min(
            capabilities.get(CAP_TOP_LOGPROBS, 0), self.limits.max_top_logprobs
        )
        capabilities[CAP_DRAFTS] = min(capabilities.get(CAP_DRAFTS, 0), MAX_DRAFTS)
        capabilities[CAP_TOKENIZER] = int(vocabulary.exact)
        capabilities[CAP_MAX_FORKS] = self.limits.max_forks
        self._capabilities = engine, vocabulary.exact, capabilities
        return capabilities

    # -- the loop --------------------------------------------------------------------------------

    def _wanted(self) -> bool:
        """Returns whether a client has sent a message, which has priority over the running guest."""
        return any(client.from_client.waiting for client in self.clients.values())

    def _timeout(self) -> float:
        deadlines = [step.deadline for client in self.clients.values() for step in client.steps]
        if timers := self.waits.timers:
            deadlines.append(timers[0][0])
        if not deadlines:
            return IDLE_WAIT_SECONDS
        return min(max(0.0, min(deadlines) - time.monotonic()), IDLE_WAIT_SECONDS)

    def _expect_step(self) -> bool:
        """Spins for a step after a client has rung the bell ahead of it; returns whether a message arrived.

        A client rings when its forward pass ends, or when it begins to pack a step. Meanwhile this brings the
        step's data back into the processor's caches.
        """
        rings = tuple(client.from_client for client in self.clients.values())
        for client in self.clients.values():
            client.publish_cpu()
            for seq in client.stepped:
                seq.touch()
                if any(ring.waiting for ring in rings):
                    return True
        return spin(rings, SAMPLING_SECONDS)

    def _serve(self) -> bool:
        """Serves clients, supervisor and agenda once; returns False if there was nothing to do."""
        busy = False
        for client in list(self.clients.values()):
            busy = self._serve_client(client) or busy
        call = self.supervisor.poll()
        if call is not None:
            self.serve_call(call)
            busy = True
        elif self.supervisor.closed:  # it has gone
            self.running = False
        if self.agenda:
            self._listener.listen()
            self.meter.begin()
            try:
                self.agenda.run_slice()
            except Exception:
                _log.exception("handling the end of a guest's call failed")
            self.meter.end()
            self.memory.look()
            busy = True
        now = 0.0
        for client in self.clients.values():
            for step in list(client.steps):
                now = now or time.monotonic()
                if now >= step.deadline:
                    step.expire()
        waits = self.waits
        if waits.timers or waits.suspects or waits.woken or self.calls.news:
            self._settle_waits()
        for client in [client for client in self.clients.values() if client.broken is not None]:
            assert client.broken is not None
            # not the message, which quotes the client and is sent to it
            about = fields(client=client.number, owner=client.owner, code=client.broken.code)
            _log.error("dropping client %d: %s", client.number, client.broken.code, extra=about)
            self.past["clients_dropped"] += 1
            client.send_error()
            self.detach(client.number)
        return busy

    def _settle_waits(self) -> None:
        """Ends waits that are over, tells clients of them, and the supervisor of calls."""
        self.waits.pass_time()
        self.waits.settle()
        self.waits.woken = False
        for client in self.clients.values():
            if client.woken:
                client.report_woken()
        self.calls.report_news()

    def _serve_client(self, client: Client) -> bool:
        """Handles the client's next message and sends queued ones; returns False if no message arrived."""
        busy = False
        try:
            message = client.receive()
            if message is not None:
                busy = True
                self.meter.begin()
                try:
                    self._handle(client, message)
                    self.memory.look()
                finally:
                    self.meter.end()
            if not client.flush():
                time.sleep(0)
        except (ProtocolError, *MALFORMED) as error:
            client.broken = ProtocolError(f"invalid message: {error!r}")
        except Exception as error:  # a defect of the runtime must not affect other clients
            about = fields(client=client.number, owner=client.owner)
            _log.exception("handling a message of client %d failed", client.number, extra=about)
            client.broken = RuntimeFailure(f"internal error: {error!r}")
        return busy

    def _handle(self, client: Client, message: list[Any]) -> None:
        op = message[OPERATION]
        if op == STEP:
            self.steps += 1
            StepWork(self._resources, client, StepRequest(*message)).run()
        elif op == START:
            self.asked += 1
            self._start_sequence(client, Start(*message))
        elif op == CLONE:
            self._clone(client, Clone(*message))
        elif op == DUE:
            due = Due(*message)
            for under_way in client.steps:
                if under_way.number == due.step:
                    under_way.due(due.ready)
        elif op == FREE:
            for number in Free(*message).seqs:
                seq = client.sequences.get(number)
                if seq is not None:
                    step = seq.waits_in
                    client.drop(seq, self.profiles)
                    if step is not None:
                        step.stop_waiting(seq)
        else:
            raise ProtocolError(f"unknown operation {op!r}")

    # -- sequences ----------------------------------------------------------------------------------

    def _start_sequence(self, client: Client, start: Start) -> None:
        try:
            seq = self._make(client, start)
        except (AiciError, GuestExit, OSError, MemoryError) as error:
            problem = _cause(error)
            client.counters[problem.code] += 1
            client.send(Started(STARTED, start.seq, problem.to_wire(), ""))
            return
        client.counters["starts"] += 1

        if not seq.instance.program.has[Export.INIT_PROMPT]:
            client.send(Started(STARTED, start.seq, None, ""))
            return
        fiber = Fiber(seq.instance, Export.INIT_PROMPT, (seq.length,))
        if not start.wait:
            client.send(Started(STARTED, start.seq, None, ""))
            seq.copies = []
            seq.mid = Work(seq.request.owner_name, fiber, partial(self._prompt_read, client, seq))
            self.agenda.add(seq.mid)
            return

        def done(value: int | None, error: Exception | None) -> None:
            seq.mid = None
            problem = _prompt_problem(value, error)
            wire = None
            if problem is not None:
                client.counters[problem.code] += 1
                wire = seq.fail(problem)
                client.drop(seq)
            client.send(Started(STARTED, start.seq, wire, ""))

        seq.mid = Work(seq.request.owner_name, fiber, done)
        self.agenda.start_task(seq.mid)

    def _make(self, client: Client, start: Start) -> Sequence:
        template = self.templates.find_template(start.template)
        if start.seq in client.sequences:
            raise ProtocolError(f"sequence {start.seq} exists already")
        owner = self.owners.get(template.owner)
        self.owners.check_room(owner, 1)
        if len(start.prompt) > 4 * self.limits.max_prompt_tokens:
            raise RuntimeFailure(
                f"the prompt has {len(start.prompt) // 4} tokens; the limit is "
                f"{self.limits.max_prompt_tokens} (max_prompt_tokens)"
            )
        capabilities = self.guest_capabilities(start.capabilities, template.vocabulary)
        request = RequestState(self.limits, owner, client.written, self.waits, client.woken)
        request.template = start.template
        if start.calls:
            capabilities = {**capabilities, CAP_CALLS: 1}
        context = GuestContext(
            template.vocabulary, capabilities, self.limits, template.arg, request, start.seed
        )
        context.arg_address, context.sources[PROMPT] = template.arg_address, start.prompt
        instance = self.memory.start_guest(owner.name, template.snapshot, start.prompt)
        seq = Sequence(start.seq, instance, context)
        if start.calls:
            request.allow_calls(self.calls, start.calls)
        if template.log:  # written last: closing the sequence releases the log's bytes
            context.log.add_output(template.log)
        client.sequences[start.seq] = seq
        return seq

    def _prompt_read(self, client: Client, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Handles the end of aici_init_prompt. A sequence that is in a step already skips that step."""
        seq.mid = None
        problem, step = _prompt_problem(value, error), seq.waits_in
        copies, seq.copies = seq.copies or [], None
        for clone in copies:
            self._clone(client, clone, problem)
        if step is None:
            seq.outcome = None if problem is None else (None, problem)
        elif problem is None:
            step.defer(seq)
        else:
            step.finish(seq, None, problem)

    def _clone(self, client: Client, clone: Clone, refusal: AiciError | None = None) -> None:
        """Copies a sequence, or lets the copy fail with `refusal`; waits for aici_init_prompt if it runs."""
        try:
            parent = client.sequences.get(clone.parent)
            if refusal is not None:
                raise refusal
            if parent is None:
                raise ProtocolError(f"there is no sequence {clone.parent} to clone")
            if parent.copies is not None:
                self.owners.check_room(parent.request.owner, len(parent.copies) + 1)
                parent.copies.append(clone)
                return
            if parent.mid is not None:
                raise RuntimeFailure(
                    f"sequence {clone.parent} is late: it can be cloned after its next result"
                )
            if clone.child in client.sequences:
                raise ProtocolError(f"sequence {clone.child} exists already")
            self.owners.check_room(parent.request.owner, 1)
            (instance,) = self.memory.fork(parent, 1)
            child = parent.child(clone.child, instance)
            child.outcome = parent.outcome
            child.by_engine = True
            parent.request.clones += 1
            client.sequences[clone.child] = child
        except (AiciError, OSError, MemoryError) as error:
            problem = _cause(error)
            client.counters[problem.code] += 1
            client.send(Cloned(CLONED, clone.child, problem.to_wire()))
        else:
            client.send(Cloned(CLONED, clone.child, None))


def _prompt_problem(value: int | None, error: Exception | None) -> AiciError | None:
    """Returns the error of aici_init_prompt, or None if it succeeded."""
    if isinstance(error, GuestExit):
        return ControllerFailed(f"the controller stopped in aici_init_prompt ({error.reason})")
    if isinstance(error, AiciError):
        return error
    if error is not None:
        return RuntimeFailure(f"aici_init_prompt failed: {error!r}")
    return ControllerFailed(f"aici_init_prompt returned {value}") if value else None


def _cause(error: Exception) -> AiciError:
    if isinstance(error, GuestExit):
        return RuntimeFailure(f"the controller ended before its first step ({error.reason})")
    if isinstance(error, AiciError):
        return error
    return RuntimeFailure(f"this worker has no room for another sequence: {describe(error)}")
