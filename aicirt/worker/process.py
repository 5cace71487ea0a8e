"""The program of a worker process, which the fork server runs, and the calls that it answers."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt import sandbox
from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure, SpaceError
from aicirt.contract.messages import Reply
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from aicirt.ipc.segment import Layout
from aicirt.settings import WorkerConfig
from aicirt.system import logs
from aicirt.system.files import Descriptor
from aicirt.system.processes import become
from aicirt.system.resources import BACKGROUND_NICE, WORKER_NICE, give_way, take_short_turns
from aicirt.system.shortage import describe
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.fiber import Ticker
from aicirt.wasm.host import Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.memory import Reaper
from aicirt.wasm.program import Program
from aicirt.wasm.snapshot import from_wire, to_wire
from aicirt.worker.client import Client
from aicirt.worker.hostapi import CALLS, TIMED, LoadedVocabulary
from aicirt.worker.loop import Worker
from aicirt.worker.scheduling import Listener
from aicirt.worker.sequence import check_arg_address
from aicirt.worker.templates import Build, Programs, Template, Warmed, Warming

if TYPE_CHECKING:
    from aicirt.wasm.host import Linker
    from aicirt.worker.loop import Worker

_log = logging.getLogger("aicirt.worker")
#: time slices: of the ticker and the listener, which run for some microseconds, and of the worker
_TICKER_TURN_SECONDS, _TURN_SECONDS = 100e-6, 1e-3


def main(argv: list[str]) -> int:
    """Serves until the supervisor stops the worker. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="aicirt.worker")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--bell-fd", type=int, required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument(
        "--background", action="store_true", help="run at a lower priority than other workers"
    )
    parser.add_argument("--user", type=int, nargs=2, metavar=("UID", "GID"), help="run as this user")
    args = parser.parse_args(argv)
    config = WorkerConfig.from_json(args.config)
    logs.configure(config.log_format, logging.WARNING)
    try:
        if config.code:
            os.chdir(config.code)  # the worker's user may be unable to reach the folder by its path
        if args.user:
            become(*args.user)
        sandbox.die_with(args.parent)
        give_way(BACKGROUND_NICE if args.background else WORKER_NICE)
        worker, threads = _start_worker(args, config)
    except (AiciError, OSError, RuntimeError) as error:
        _log.critical("cannot start: %s", describe(error))  # safe to log: the message cannot quote a user yet
        return 1
    worker.run()
    for end in threads:
        end()
    return 0


def _start_worker(args: argparse.Namespace, config: WorkerConfig) -> tuple[Worker, list[Callable[[], None]]]:
    """Creates the worker and confines the process; returns the worker and functions that end its threads.

    Raises an error for any missing resource.
    """
    control = FrameSocket(socket.socket(fileno=args.control_fd))
    bell = Doorbell.of_file(args.bell_fd)
    os.close(args.bell_fd)
    engine = WasmEngine(config.limits)
    linker = Linker(engine, host_functions(CALLS, TIMED))
    layers = sandbox.enter(sandbox.BUILDER if args.background else sandbox.WORKER)
    engine.reaper = reaper = Reaper()
    reaper.start()
    take_short_turns(_TICKER_TURN_SECONDS)
    ticker = Ticker(engine)
    listener = Listener(bell, engine.interrupt_slice)
    listener.start()
    take_short_turns(_TURN_SECONDS)
    worker = Worker(bell, listener, control, engine, ticker, config.request, config.worker)
    worker.serve_call = Controls(worker, linker, layers.to_wire()).serve_call
    return worker, [listener.end_thread, reaper.end_thread, ticker.close]


#: result of a call that replies by itself
_LATER = object()


class Controls:
    """Answers the calls that a worker receives on its control socket."""

    def __init__(self, worker: Worker, linker: Linker, layers: dict[str, Any] | None = None) -> None:
        """`layers`: the sandbox of this process, for `health`."""
        self._worker = worker
        self._socket = worker.supervisor
        self._layers = layers or {}
        self._programs = Programs(linker, worker.settings.max_programs)
        self._vocabularies: dict[int, LoadedVocabulary] = {}
        self._num_built = 0
        #: builds in progress, by the supervisor's numbers
        self._builds: dict[int, Build] = {}
        #: each receives the call's number, arguments and descriptors, and removes the descriptors it keeps
        self._calls: dict[str, Callable[[int, dict[str, Any], list[int]], Any]] = {
            "ping": self._ping,
            "vocabulary": self._vocabulary,
            "forget_vocabulary": self._forget_vocabulary,
            "build": self._build,
            "cancel": self._cancel,
            "found": self._found,
            "calls": self._listen_to_calls,
            "answer": self._answer_call,
            "warm": self._warm,
            "adopt": self._adopt,
            "attach": self._attach,
            "detach": self._detach,
            "stop": self._stop,
        }

    def serve_call(self, call: list[Any]) -> None:
        """Serves a call that the worker has just received."""
        number, name, args, _ = call
        fds = self._socket.take_fds()
        try:
            value = self._calls[name](number, args, fds)
        except AiciError as error:
            self._reply(Reply(number, error.to_wire(), None))
        except Exception as error:
            _log.exception("call %r failed", name)
            self._reply(
                Reply(number, RuntimeFailure(f"internal error in call {name!r}: {error!r}").to_wire(), None)
            )
        else:
            if value is not _LATER:
                self._reply(Reply(number, None, value))
        finally:
            for fd in fds:
                os.close(fd)

    def _reply(self, reply: Reply, fds: list[int] | None = None) -> None:
        try:
            self._socket.send(reply, fds)
        except OSError:
            self._worker.running = False

    def _ping(self, _: int, __: dict[str, Any], ___: list[int]) -> dict[str, Any]:
        worker = self._worker
        counters = worker.counters
        for name, count in (
            ("templates_given_up", worker.templates.given_up),
            ("programs_given_up", self._programs.given_up),
        ):
            if count:
                counters[name] = count
        return {
            "sequences": worker.num_sequences,
            "clients": {number: len(client.sequences) for number, client in worker.clients.items()},
            "busy": worker.meter.busy(),
            "work_s": worker.meter.cpu_seconds,
            "asked": worker.asked,
            "counters": dict(counters),
            "steps": worker.steps,
            "snapshot_bytes": worker.templates.nbytes,
            "templates_given_up": worker.templates.given_up,
            "built": self._num_built,
            "sandbox": self._layers,
            "memory": worker.memory.count_memory(),
            "found": len(worker.profiles),
        }

    def _vocabulary(self, _: int, args: dict[str, Any], fds: list[int]) -> None:
        image_fd, tokenizer_fd = _take(fds), _take(fds)
        self._vocabularies[args["id"]] = LoadedVocabulary(
            image_fd, args["image_bytes"], tokenizer_fd, args["tokenizer_bytes"], args["tokenizer_kind"]
        )

    def _forget_vocabulary(self, _: int, args: dict[str, Any], __: list[int]) -> None:
        """Forgets a vocabulary; its users keep it."""
        self._vocabularies.pop(args["id"], None)
        self._worker.engine.spares.clear()

    def _build(self, number: int, args: dict[str, Any], fds: list[int]) -> object:
        """Builds a template.

        Replies with the template's description for `_adopt` of any worker, or with the error, and with the
        CPU time used.
        """
        worker = self._worker
        self._num_built += 1
        arg = _argument(args, fds)
        vocabulary = self._vocabularies[args["vocabulary"]]
        capabilities = worker.guest_capabilities(args["capabilities"], vocabulary)

        def done(result: Template | AiciError) -> None:
            del self._builds[args["build"]]
            answer: dict[str, Any] = {"cpu_s": build.used_ns / 1e9}
            files: list[int] = []
            if isinstance(result, AiciError):
                worker.past[result.code] += 1
                answer["error"] = result.to_wire()
            else:
                answer["built"], files = _description(result)
            self._reply(Reply(number, None, answer, len(files)), files)

        load = partial(self._program, args)
        build = Build(args["owner"], worker.memory, worker.limits, load, arg, vocabulary, capabilities, done)
        self._builds[args["build"]] = build
        worker.agenda.add(build)
        return _LATER

    def _cancel(self, _: int, args: dict[str, Any], __: list[int]) -> None:
        """Cancels a build for which nobody waits; it replies at once, unless it has ended before."""
        if (build := self._builds.get(args["build"])) is not None:
            build.cancel()

    def _found(self, _: int, __: dict[str, Any], ___: list[int]) -> list[tuple[int, bytes]]:
        """Returns what ended sequences have found, each with the number of its template, and forgets it."""
        return self._worker.profiles.take_found()

    def _listen_to_calls(self, number: int, _: dict[str, Any], __: list[int]) -> object:
        """Replies as soon as there is news of calls (`aicirt.worker.waits`)."""
        self._worker.calls.listener = lambda news: self._reply(Reply(number, None, news))
        return _LATER

    def _answer_call(self, _: int, args: dict[str, Any], __: list[int]) -> None:
        """Passes the answer to a call on to its request."""
        self._worker.calls.pass_on(args["request"], args["number"], args["result"])

    def _warm(self, number: int, args: dict[str, Any], fds: list[int]) -> object:
        """Continues `aici_warm` in a template from any builder, while the worker has no other tasks.

        `found`: what a sequence of this template has found.

        Replies with the new template's description, and with whether `aici_warm` has more to do.
        """
        worker = self._worker
        template = self._template(args, fds)

        def done(result: Warmed | AiciError) -> None:
            if isinstance(result, AiciError):
                self._reply(Reply(number, result.to_wire(), None))
                return
            found, files = _description(result.template)
            self._reply(Reply(number, None, {**found, "more": result.more}, len(files)), files)

        capabilities = worker.guest_capabilities(args["capabilities"], template.vocabulary)
        budget, most = args["budget_ms"], args["most_bytes"]
        found = args["found"]
        warming = Warming(template, capabilities, worker.limits, budget, most, found, done)
        worker.memory.watch(warming.instance, template.owner, warming.fail)
        worker.agenda.when_idle(warming)
        return _LATER

    def _adopt(self, _: int, args: dict[str, Any], fds: list[int]) -> int:
        """Adds a template that another process has built; returns its number here.

        `replaces` names a template to replace, whose number stays; returns 0 if that has been evicted.
        """
        templates, template = self._worker.templates, self._template(args, fds)
        if old := args.get("replaces"):
            return old if templates.replace(old, template) else 0
        return templates.add(template)

    def _template(self, args: dict[str, Any], fds: list[int]) -> Template:
        """Rebuilds a template from another process. Raises ProtocolError if its description is invalid."""
        arg = _argument(args, fds)
        vocabulary = self._vocabularies[args["vocabulary"]]
        built = args["built"]
        file = _take(fds) if fds else -1
        snapshot = from_wire(self._program(args), built["snapshot"], file, vocabulary.file)
        address, log = int(built["address"]), built["log"]
        check_arg_address(address, snapshot.size)
        if not isinstance(log, bytes):
            raise ProtocolError("the log of a template must be bytes")
        return Template(snapshot, arg, address, vocabulary, log, args["owner"])

    def _program(self, args: dict[str, Any]) -> Program:
        return self._programs.find_program(args["module"], args["path"], args["owner"])

    def _attach(self, _: int, args: dict[str, Any], fds: list[int]) -> None:
        worker = self._worker
        worker.detach(args["client"])  # a client that registers another vocabulary attaches again
        _require(fds, 1)
        waker = [Descriptor(fds.pop(1)) for _ in fds[1:2]]
        worker.clients[args["client"]] = Client(
            args["client"],
            args["link"],
            fds[0],
            Layout.from_wire(args["layout"]),
            self._vocabularies[args["vocabulary"]],
            worker.settings.max_outbox,
            args["owner"],
            *waker,
        )

    def _detach(self, _: int, args: dict[str, Any], __: list[int]) -> None:
        self._worker.detach(args["client"])

    def _stop(self, _: int, __: dict[str, Any], ___: list[int]) -> None:
        self._worker.running = False


def _description(template: Template) -> tuple[dict[str, Any], list[int]]:
    """Returns the description from which `Controls._template` rebuilds the template, and its file."""
    wire, fd = to_wire(template.snapshot)
    nbytes = template.snapshot.nbytes
    found = {"snapshot": wire, "nbytes": nbytes, "address": template.arg_address, "log": template.log}
    return found, [fd] if fd >= 0 else []


def _take(fds: list[int]) -> int:
    """Removes and returns the next descriptor, which the caller then owns."""
    _require(fds, 1)
    return fds.pop(0)


def _require(fds: list[int], count: int) -> None:
    if len(fds) < count:
        raise SpaceError(
            "a call arrived without its file descriptors, because the worker cannot open more files: raise "
            "the limit (ulimit -n)"
        )


def _argument(args: dict[str, Any], fds: list[int]) -> bytes:
    fd = _take(fds)
    try:
        return os.pread(fd, args["arg_bytes"], 0)
    finally:
        os.close(fd)
