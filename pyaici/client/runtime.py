"""The client: uploads controllers, starts sequences, runs steps beside an engine's forward pass."""

from __future__ import annotations

import builtins
import contextlib
import itertools
import math
import os
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from aicirt.contract.errors import (
    AiciError,
    ProtocolError,
    RuntimeFailure,
    TemplateGoneError,
    UnknownControllerError,
    UnknownSequenceError,
    VocabularyError,
    WorkerDiedError,
)
from aicirt.contract.messages import START, STEP, Start, StepInput, StepRequest
from aicirt.contract.modules import ControllerInfo, StoredScript
from aicirt.system.files import Closing
from pyaici.bundled import DESCRIPTIONS, bundled_controllers, check_tag, unknown_controller
from pyaici.client.arguments import ALL, Argument, Capabilities, argument_bytes, prompt_bytes
from pyaici.client.calls import Answerer
from pyaici.client.control import Control, Daemon, Placement, list_modules, list_page
from pyaici.client.sequences import SEQ, Alarm, Links, Sequences, WorkerLink
from pyaici.client.step import LATE_SECONDS, Step, StepPart

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary


def rows_for(sequences: int) -> int:
    """Returns `num_rows` of a `Runtime` for an engine with so many sequences, each of which needs two."""
    return max(256, 2 * sequences + 64)


class Runtime(Closing):
    """A connection to aicirt, which is started if `socket` names none.

    Use as a context manager, from one thread. Errors are `aicirt.contract.errors.AiciError`. After `close`,
    calls raise `ClosedError`.

    ::

        with Runtime() as runtime:
            runtime.register(vocabulary)
            seq = runtime.instantiate("regex", "[0-9]+", prompt_tokens)
            step = runtime.begin_step([StepInput(seq)])
            step.wait_pre()
            logits = forward()          # mid_process runs meanwhile
            result = step.wait().mid[seq]
    """

    def __init__(
        self,
        socket: str | Path | None = None,
        *,
        workers: int | None = None,
        limits: Mapping[str, int] | None = None,
        store: Path | None = None,
        num_rows: int = 256,
        num_dense: int | None = None,
        owner: str | None = None,
    ) -> None:
        """Connects to the daemon at `socket` (default: $AICI_SOCKET), or starts a private one.

        `workers`, `limits` (names as in ``aici runtime --help``) and `store` configure a private daemon. With
        any of them, $AICI_SOCKET is ignored.
        `num_rows` bounds an owner's live sequences per worker: each needs two mask rows, and three after an
        abandoned step. There are as many again for other owners. `num_dense` bounds the rows with biases for
        all tokens, 4 bytes for each token: by default as many as mask rows, since a row takes memory from its
        first use on (before Linux 5.14: 32, which take it from the start).
        `owner`: the owner for whom this client works. Owners of a shared daemon have separate
        tags, snapshots and limits. A client for many users passes `owner` to the methods that take it, which
        overrides this one.
        """
        shared = workers is None and limits is None and store is None
        path = socket or (os.environ.get("AICI_SOCKET") if shared else None)
        self._daemon = None if path else Daemon(workers=workers, limits=limits, store=store)
        try:
            self._control = Control(Path(path) if path else self._require_daemon().socket_path, owner)
        except BaseException:
            if self._daemon is not None:
                self._daemon.close()
            raise
        #: offers to answer the calls of controllers, for `instantiate` of this runtime or of others
        self.answerer = Answerer(self._control)
        #: ids of the bundled controllers that this client has uploaded, by name
        self.bundled: dict[str, str] = {}
        self._vocabulary: tuple[int, int] | None = None  # (number at the supervisor, size)
        self._live = Sequences()
        self._alarm = Alarm()
        self._links = Links(self._control, self._live, num_rows, num_dense)
        self._steps = itertools.count(1)
        #: steps that the engine still holds
        self._posted: WeakSet[Step] = WeakSet()
        self._closed = False
        self._pid = os.getpid()

    # -- controllers ------------------------------------------------------------------------

    def register(self, vocabulary: Vocabulary) -> None:
        """Registers the vocabulary; its image is built once per aicirt (a second for 100 k tokens).

        Raises VocabularyError.
        """
        known = self._control.call("vocabulary", fingerprint=vocabulary.fingerprint)
        if known is None:
            spec = vocabulary.registration()
            known = self._control.call("vocabulary", fingerprint=vocabulary.fingerprint, spec=spec)
        if self._live:
            raise VocabularyError("the vocabulary cannot change while sequences are live")
        self._close_links("another vocabulary has been registered since")
        self._vocabulary = known["id"], known["vocab_size"]

    def upload(self, wasm: str | Path | bytes, *, owner: str | None = None) -> ControllerInfo:
        """Stores a module (bytes, or the path of a .wasm file) and compiles it.

        Raises ModuleError, with all reasons, if it is not a valid controller for this runtime.
        """
        data = wasm if isinstance(wasm, bytes) else Path(wasm).read_bytes()
        return ControllerInfo.from_wire(self._control.call("upload", wasm=data, owner=owner))

    def upload_script(self, script: StoredScript, *, owner: str | None = None) -> ControllerInfo:
        """Stores a script, whose interpreter must have been uploaded; its id is used like a module's.

        `instantiate` takes the script's argument as text, which is parsed if it is JSON. Raises ModuleError
        if the script is invalid, or if there is no such interpreter.
        """
        stored = self._control.call("upload_script", script=asdict(script), owner=owner)
        return ControllerInfo.from_wire(stored)

    def find(self, name: str, *, owner: str | None = None) -> str:
        """Returns the id of a controller. All calls that take a controller find it in the same way.

        `name`: a bundled controller's name, a tag, or the id of a module or stored script or at least its
        first 12 digits. A bundled controller is uploaded when it is first needed. `name` is never a path: it
        may come from a network client, which must not read files of this machine.

        Raises UnknownControllerError.
        """
        return self.describe(name, owner=owner).id

    def tag(self, controller: str, tag: str, *, owner: str | None = None) -> None:
        """Gives a controller (see `find`) a name by which it can be instantiated.

        Raises ModuleError for a bad name, also that of a bundled controller, or if another owner has the tag.
        """
        check_tag(tag)
        self._call("tag", controller, tag=tag, owner=owner)

    def untag(self, tag: str, *, owner: str | None = None, force: bool = False) -> None:
        """Removes a tag; with `force` also another owner's.

        Raises UnknownControllerError, and ModuleError if another owner has it.
        """
        self._control.call("untag", tag=tag, owner=owner, force=force)

    def remove(self, controller: str, *, owner: str | None = None, force: bool = False) -> bool:
        """Withdraws an owner's upload of a controller (id or tag, no bundled name).

        The owner must remove their tags on it first. Deletes the module and returns True if no other owner
        has uploaded it or has a tag on it; its live sequences go on. `force`: deletes it and all its tags in
        any case. Raises UnknownControllerError, and ModuleError if the owner has not uploaded it, or has tags
        on it.
        """
        gone: bool = self._control.call("remove", module=controller, owner=owner, force=force)
        return gone

    def describe(self, controller: str, *, owner: str | None = None) -> ControllerInfo:
        """Describes a controller (see `find`). Raises UnknownControllerError."""
        return ControllerInfo.from_wire(self._call("describe", controller, owner=owner))

    def list(self) -> list[ControllerInfo]:
        """Returns all stored modules."""
        return list(list_modules(self._control))

    def list_page(self, after: str = "", *, found_by: str | None = None) -> builtins.list[ControllerInfo]:
        """Returns the next page of modules by id, after the id `after`; an empty list at the end.

        `found_by`: list only modules that this owner has uploaded, or that have a tag.
        """
        return list_page(self._control, after, found_by)

    def health(self) -> dict[str, Any]:
        """Returns process ids, load and counters of the supervisor and its workers."""
        return dict(self._control.call("health"))

    @property
    def daemon_pid(self) -> int:
        """The process id of aicirt's supervisor."""
        return int(self._control.hello["pid"])

    @property
    def owner_limits(self) -> Mapping[str, int]:
        """The limits of an owner's uploads and tags (`owner_upload_bytes`, `owner_tags`), by name."""
        return dict(self._control.hello)

    def is_connected(self) -> bool:
        """Returns whether aicirt is connected, as far as can be known without a call."""
        return not self._closed and self._control.is_open()

    def _call(self, call: str, controller: str, **args: Any) -> Any:
        """Makes a call about a controller, which may have any name that `find` takes."""
        module = self.bundled.get(controller, controller)
        try:
            if controller in DESCRIPTIONS and controller not in self.bundled:
                module = self._upload_bundled(controller)
            return self._control.call(call, module=module, **args)
        except UnknownControllerError as error:
            known = [name for name, uploaded in list(self.bundled.items()) if uploaded == module]
            if not known:
                raise unknown_controller(controller) if "name" in error.detail else error from None
        # somebody has removed it since it was uploaded
        return self._control.call(call, module=self._upload_bundled(known[0]), **args)

    def _upload_bundled(self, name: str) -> str:
        file = bundled_controllers().get(name)
        if file is None:
            raise unknown_controller(name)
        self.bundled[name] = module = self.upload(file).id
        return module

    # -- sequences ------------------------------------------------------------------------------

    def prepare(
        self,
        controller: str,
        arg: Argument = b"",
        *,
        capabilities: Capabilities = ALL,
        owner: str | None = None,
    ) -> None:
        """Makes the controller (see `find`) read its argument now instead of at the first `instantiate`.

        Checks the argument before there is a prompt, and saves the first sequence the wait. Raises
        UnknownControllerError, ArgumentError and every other ControllerError.
        """
        self._call("prepare", controller, **self._template(arg, capabilities, owner))

    def instantiate(
        self,
        controller: str,
        arg: Argument = b"",
        prompt: Sequence[int] = (),
        *,
        capabilities: Capabilities = ALL,
        seed: int | None = None,
        wait: bool = True,
        within: float = LATE_SECONDS,
        owner: str | None = None,
        placement: Placement | None = None,
        calls: str = "",
    ) -> int:
        """Starts a controller (see `find`) for a prompt and returns the sequence's number.

        `arg`: a text or bytes; a dict or list is passed as JSON.

        Returns after `init_prompt`. Without `wait`, returns once the worker has made the sequence, or after
        `within` seconds: it is late until `init_prompt` has ended, and an error is its first result. Raises
        UnknownControllerError, ArgumentError (the controller refused `arg`; its log is in `detail["log"]`)
        and every other ControllerError.

        `placement`: the result of `place` for the same controller, so that this call does not wait for
        aicirt. Raises TemplateGoneError or WorkerDiedError if the sequence must be placed again; without
        `placement` this method does that for the former. What comes after `within` is the first result, too.
        `calls`: the token of the offer to answer the controller's calls (`pyaici.client.calls`).
        """
        tokens = prompt_bytes(prompt, self._require_vocabulary()[1])
        seed = secrets.randbits(63) if seed is None else seed & (1 << 63) - 1
        where = placement or self.place(controller, arg, capabilities=capabilities, owner=owner, calls=calls)
        try:
            link, seq = self._send_start(where, tokens, capabilities, seed, wait, within, calls)
        except TemplateGoneError:
            if placement is not None:
                raise
            where = self.place(
                controller, arg, capabilities=capabilities, owner=owner, gone=where, calls=calls
            )
            link, seq = self._send_start(where, tokens, capabilities, seed, wait, within, calls)
        self._live.add_sequence(
            seq, link, has_pre=where.has_pre, has_post=where.has_post, repeatable=where.repeatable
        )
        return seq

    def place(
        self,
        controller: str,
        arg: Argument = b"",
        *,
        capabilities: Capabilities = ALL,
        owner: str | None = None,
        gone: Placement | None = None,
        calls: str = "",
    ) -> Placement:
        """Chooses a worker for a new sequence and prepares it: the slow part of `instantiate`.

        May be called from any thread. `gone`: an earlier placement, whose worker has evicted the snapshot.
        `calls`: see `instantiate`, which must get the same. Raises UnknownControllerError, ArgumentError and
        all other errors of `instantiate`.
        """
        call = self._template(arg, capabilities, owner)
        if calls:
            call["calls"] = calls
        if gone is not None:
            call["gone"] = gone.to_wire()
        placement = Placement.from_wire(self._call("instantiate", controller, **call))
        # here, since a new worker on a busy machine takes seconds
        self._links.attach(placement.address, *self._require_vocabulary(), owner)
        return placement

    def _template(self, arg: Argument, capabilities: Capabilities, owner: str | None) -> dict[str, Any]:
        """Returns the arguments that with a controller identify the snapshot from which a sequence starts."""
        number, _ = self._require_vocabulary()
        return {
            "arg": argument_bytes(arg),
            "vocabulary": number,
            "capabilities": capabilities.to_wire(),
            "owner": owner,
        }

    def _send_start(
        self,
        placement: Placement,
        prompt: bytes,
        capabilities: Capabilities,
        seed: int,
        wait: bool,
        within: float,
        calls: str,
    ) -> tuple[WorkerLink, int]:
        self._links.let_go()
        link = self._links.find(placement.address)
        seq = self._live.fresh_number()
        message = Start(START, seq, placement.template, prompt, capabilities.to_wire(), seed, wait, calls)
        link.send_start(message, within)
        return link, seq

    def woken(self) -> builtins.list[int]:
        """Returns the live sequences that wait no longer, since the last call.

        A sequence whose `PreResult` said that it waits need not take part in steps until it is named here.
        """
        return self._live.take_woken(self._links.all)

    def sleep(self, seconds: float) -> None:
        """Sleeps until a sequence is woken, a worker ends, another thread calls `ring`, or for so long."""
        self._alarm.sleep(seconds, [link for link in self._links.all if not link.dead])

    def ring(self) -> None:
        """Ends the present `sleep`, or the next one. May be called from any thread."""
        self._alarm.ring()

    def is_live(self, seq: int) -> bool:
        """Returns whether the sequence has been started, and neither ended nor freed."""
        return seq in self._live

    def lost(self) -> dict[int, WorkerDiedError]:
        """Returns the live sequences whose workers have ended, each with its error.

        A step reports the same for the sequences that take part in it. An engine asks for the others, e.g.
        those whose prompts it still feeds.
        """
        gone = {link: link.death() for link in self._links.all if link.gone}
        return {seq: gone[link] for seq, link in self._live.items() if link in gone} if gone else {}

    def wants_logprobs(self, seq: int) -> bool:
        """Returns whether post_process of the controller will receive log-probability and allowed mass.

        Computing them takes longer than masking. For other controllers, and where the last result skips the
        call, they are needed only after a row with `top_logprobs`.
        """
        return seq in self._live.link(seq).calls.measured

    def is_repeatable(self, seq: int) -> bool:
        """Returns whether clones of the sequence can take steps that are discarded.

        False if its controller writes variables, draws random numbers, or has pre_process or post_process:
        these act beyond the sequence, or depend on which sequence it is.
        """
        self._live.link(seq)
        return seq in self._live.repeatable

    def clone(self, seq: int) -> int:
        """Copies a sequence for the engine (n > 1, beam search); returns the copy's number.

        Raises RuntimeFailure while a step of the sequence is under way: from `begin_step` until its answer
        has been fetched or it has been abandoned, and as long as the sequence is late.
        """
        child = self.begin_clone(seq)
        self.cloned(child, None)
        return child

    def begin_clone(self, seq: int) -> int:
        """Asks for a copy like `clone`, without waiting; returns its number, for `cloned`.

        The copy is made once `init_prompt` of the sequence has ended. No step of the sequence may be posted
        before that. The end of the sequence ends the copy too.
        """
        link = self._live.link(seq)
        if any(step.holds(seq) for step in self._posted):
            raise RuntimeFailure(
                f"sequence {seq} is in a step under way; clone it after Step.wait has returned"
            )
        if link.is_late(seq):
            raise RuntimeFailure(f"sequence {seq} is late: it can be cloned after its next result")
        child = self._live.fresh_number()
        link.send_clone(seq, child)
        return child

    def cloned(self, child: int, seconds: float | None = 0.0) -> bool:
        """Returns whether a copy has been made, for which it waits at most so long; None is without a limit.

        If so, or if it raises the error for which there is no copy, it must not be called again.
        """
        copy = self._live.copying.get(child)
        if copy is None:
            raise UnknownSequenceError(f"no sequence is being copied to {child}")
        try:
            if not copy.link.expect_clone(child, seconds):
                return False
        except AiciError:
            self.free([child])
            raise
        self._live.inherit(copy.parent, [child])
        return True

    def clone_each(self, seqs: Collection[int], seconds: float = math.inf) -> dict[int, int]:
        """Copies several sequences with a single wait; returns the copies' numbers by the sequences'.

        Leaves out sequences that could not be copied, for any reason, or take longer than `seconds`.
        """
        self._live.check_open()
        sent: dict[int, int] = {}
        for seq in seqs:
            with contextlib.suppress(UnknownSequenceError, RuntimeFailure):
                sent[seq] = self.begin_clone(seq)
        copies: dict[int, int] = {}
        end = time.monotonic() + seconds
        for seq, child in sent.items():
            with contextlib.suppress(AiciError):
                if self.cloned(child, None if end == math.inf else max(0.0, end - time.monotonic())):
                    copies[seq] = child
                else:
                    self.free([child])
        return copies

    def free(self, seqs: Iterable[int]) -> None:
        """Ends sequences; ignores numbers of sequences that are not live."""
        seqs = list(seqs)
        self._live.free(seqs)

    def begin_step(self, inputs: Sequence[StepInput]) -> Step:
        """Posts one step of some sequences and returns at once.

        Raises UnknownSequenceError before anything is sent. The death of a worker is not raised: its
        sequences get an error in the results.
        """
        number = next(self._steps)
        parts: list[StepPart] = []
        for link, items in self._by_link(inputs):
            if link.outstanding or link.unread or link.held:
                late, items = link.set_aside(items)
                if late:
                    parts.append(StepPart(link, late, late=True))
                if not items:
                    continue
            critical = not link.calls.critical.isdisjoint(map(SEQ, items))
            if link.calls.spared:
                link.calls.restore(map(SEQ, items))
            if critical and link.asleep:
                link.wake()
            part = StepPart(link, items, critical)
            parts.append(part)
            link.last_step = number
            released = link.rows.take_released()
            try:
                link.send(StepRequest(STEP, number, critical, *released, items))
            except RuntimeFailure as error:
                part.failure = error
            except (TypeError, ValueError, OverflowError) as error:
                link.rows.put_back(released)
                raise ProtocolError(f"a StepInput has a value of a wrong type or size: {error}") from error
        step = Step(self._live, number, parts)
        self._posted.add(step)
        return step

    def _by_link(self, inputs: Sequence[StepInput]) -> Iterable[tuple[WorkerLink, Sequence[StepInput]]]:
        """Groups inputs by worker. Raises UnknownSequenceError."""
        links = self._links.all
        if len(links) == 1 and all(map(self._live.__contains__, map(SEQ, inputs))):
            return [(links[0], inputs)] if inputs else []
        return self._live.by_link(inputs)

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends all sequences, and aicirt if this runtime has started it."""
        if self._closed or os.getpid() != self._pid:  # a fork of this process has nothing to close
            return
        self._closed = True
        self._live.close()
        self.answerer.close()
        self._control.close()
        self._close_links("the runtime has been closed")
        self._alarm.close()
        if self._daemon is not None:
            self._daemon.close()

    def _close_links(self, why: str) -> None:
        for step in list(self._posted):
            step.end(why)
        self._links.close()

    def _require_vocabulary(self) -> tuple[int, int]:
        self._live.check_open()
        if self._vocabulary is None:
            raise VocabularyError("the runtime has no vocabulary yet; call runtime.register first")
        return self._vocabulary

    def _require_daemon(self) -> Daemon:
        assert self._daemon is not None
        return self._daemon
