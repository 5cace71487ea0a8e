"""Limits, intervals and settings of the runtime, each with its reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from aicirt.system.processes import User


def limit(default: float, unit: str, beyond: str) -> Any:
    """Declares a field of a dataclass of limits: its default, its unit, and what happens beyond it."""
    return dataclasses.field(default=default, metadata={"unit": unit, "beyond": beyond})


def work(default: float, unit: str, beyond: str) -> Any:
    """Does the same for a limit on a fixed amount of work, in time of the reference machine.

    `WorkerConfig.with_overrides` adapts it to the pace of this machine.
    """
    return dataclasses.field(default=default, metadata={"unit": unit + " *", "beyond": beyond, "paced": True})


def describe(limits: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Yields (name, default with unit, what happens beyond it) for each field of a dataclass of limits."""
    for item in dataclasses.fields(limits):
        default: Any = item.default
        yield item.name, _amount(default, item.metadata["unit"]), item.metadata["beyond"]


def _amount(value: float, unit: str) -> str:
    if unit.startswith("bytes"):
        size, name = (value / (1 << 20), "MiB") if value >= 1 << 20 else (value / (1 << 10), "KiB")
        if size >= 1:
            unit = f"{unit} ({size:g} {name})"
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:g} {unit}"


#: bytes in a WebAssembly page, the unit of memory.grow
WASM_PAGE = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one guest. Times are CPU time of the guest, in milliseconds of the reference machine."""

    #: linear memory without shared mappings. A regex at 262 k tokens needs about 1 MiB, a
    #: script interpreter 1-16 MiB. Untouched memory costs nothing.
    memory_bytes: int = limit(
        64 << 20, "bytes", "memory.grow fails; if the controller then traps, memory_limit"
    )
    #: entries in all tables: one per function whose address is taken; large programs have 10 k
    table_elements: int = limit(20_000, "entries", "table.grow fails")
    #: mutable globals: C has one, AssemblyScript 14; each adds a microsecond to every clone
    mutable_globals: int = limit(200, "globals", "the module is refused")
    #: exports. Compilers emit tens. A worker pauses while it loads a module: about 1.5 us per export
    exports: int = limit(500, "exports", "the module is refused")
    #: total length of all export names. Loading takes 2 ms per MB of names
    export_bytes: int = limit(64 << 10, "bytes of names", "the module is refused")
    #: functions. Large programs have 10 k. Loading takes 35 ns per function
    functions: int = limit(100_000, "functions", "the module is refused")
    #: types, globals, imports, tags and segments, each counted separately. Compilers emit tens. Loading,
    #: instantiating and describing a module takes microseconds per item (types: 9 us). The same limit applies
    #: to the parameters and results of all types together, at 45 ns each
    items: int = limit(5_000, "of each kind", "the module is refused (types, globals, imports, segments...)")
    #: tables: one for functions, one for exceptions or references
    tables: int = limit(4, "tables", "the module is refused")
    #: size of a module's file. An interpreter has 1 MB. Compiling takes about 1.3 s per MB
    module_bytes: int = limit(16 << 20, "bytes", "the module is refused")
    #: `aici_init`, `aici_init_prompt` and the start functions, which may build large tables
    init_ms: float = work(1000.0, "ms", "time_limit")
    #: on the critical path between two forward passes. A sequence may save unused time, up to
    #: `critical_saved_ms`
    pre_ms: float = work(1.0, "ms a step", "time_limit, once the saved time is also used up")
    #: runs beside the forward pass, which takes about this long
    mid_ms: float = work(20.0, "ms a step", "the sequence is late, see max_late_steps")
    #: text for which one `aici_mid_process` may call tokenize free of charge: the time of a fixed amount of
    #: work is the machine's. The time of more text counts as the guest's, as in all other callbacks
    mid_tokenize_bytes: int = limit(
        4 << 10, "bytes a step", "the time of tokenize counts as the controller's"
    )
    #: on the critical path between two forward passes, like `pre_ms`
    post_ms: float = work(1.0, "ms a step", "time_limit, once the saved time is also used up")
    #: the time for `pre_ms` and `post_ms` that a sequence starts with and may save. Tolerates an occasional
    #: slow call, or one that a busy machine interrupts. Other sequences wait no longer than this
    critical_saved_ms: float = work(2.0, "ms", "a sequence saves at most this, or pre_ms + post_ms if larger")
    #: one call of `aici_warm`. No sequence waits for it, but only the state between two calls can be kept. A
    #: mask of a large vocabulary takes 0.1 to 1 ms; finding forced tokens takes up to 10 ms
    warm_ms: float = work(50.0, "ms a call", "the snapshot stays unchanged")
    #: read-only mappings (the vocabulary image: 10 MB at 262 k tokens), counted separately
    shared_bytes: int = limit(256 << 20, "bytes", "memory_limit (counts the vocabulary image)")


#: Stack of Wasm code: wasmtime's default. A thread needs this much plus `STACK_MARGIN`.
WASM_STACK = 512 << 10
#: Stack that host functions (Python) may need in addition to the Wasm stack. If Wasm runs out of
#: stack with less than this left to the thread, the process is killed.
STACK_MARGIN = 256 << 10
#: Stack of a fiber: Wasm and, on the same stack, host functions and the epoch callback.
FIBER_STACK = 2 << 20
#: Period of the epoch ticker: the resolution of time limits. While a guest runs, each tick costs
#: about 25 us of another thread.
TICK_MS = 1.0


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one request (a sequence and all its forks) in a worker."""

    #: live sequences that a controller may fork into; the original AICI allowed 16
    max_forks: int = limit(16, "sequences", "fork_limit")
    #: forks of a request in all, ended ones included: what they wrote is kept until the request ends
    max_total_forks: int = limit(1024, "forks of a request", "fork_limit")
    #: consecutive late steps before a sequence is ended: 10 x 20 ms is half the time of a slow token
    max_late_steps: int = limit(10, "steps in a row", "time_limit")
    #: wall-clock time in milliseconds after which a step is answered with the rows that are ready; well
    #: above mid_ms, since the rows of one step share a core
    step_deadline_ms: int = work(100, "ms of wall-clock time", "sequences that are not ready are late")
    #: wall-clock time in milliseconds that an engine with logits waits for the remaining rows of a step once
    #: some are ready (a tick of at most 1 ms may be added). A slower sequence sits out this step, and no
    #: other sequence waits for it
    step_grace_ms: float = work(
        0.5, "ms of wall-clock time", "late, if the engine waits and others are ready"
    )
    #: rounds for which all sequences of a request may stay suspended before the request counts as deadlocked
    max_suspended_steps: int = limit(1000, "steps in a row", "deadlock, if all sequences are suspended")
    #: consecutive rounds with activity but without a token added or removed: all sequences of a request are
    #: suspended and write variables, or a sequence splices nothing. Waiting for other sequences in this way
    #: is legitimate; 10 000 rounds are minutes of a model's time
    max_idle_steps: int = limit(10_000, "steps in a row", "livelock, if no token is added or removed")
    #: tokens in one splice; longer forced text takes several steps
    max_ff_tokens: int = limit(4096, "tokens", "result")
    #: log text kept per sequence between two steps
    log_bytes: int = limit(64 << 10, "bytes a step", "the rest is dropped, and the log says so")
    #: shared variables: their number, the length of a name, and the bytes of all names and values together
    max_variables: int = limit(1024, "variables", "variable_limit")
    max_variable_name: int = limit(256, "bytes", "result")
    max_variable_bytes: int = limit(1 << 20, "bytes", "variable_limit")
    #: calls of a request in all: each leaves a number and some bytes behind
    max_calls: int = limit(4096, "calls of a request", "call_limit")
    #: calls that are answered at the same time; each may hold a thread of the program that answers
    calls_under_way: int = limit(16, "calls of a request at a time", "further calls wait for others to end")
    #: bytes of the arguments of one call, and of all calls of a request that wait for others to end
    max_call_bytes: int = limit(64 << 10, "bytes", "call_limit")
    max_queued_call_bytes: int = limit(1 << 20, "bytes", "call_limit")
    #: answers to calls that the request keeps; those that have been read make room for later ones
    max_result_bytes: int = limit(1 << 20, "bytes", "an answer without room is replaced by an error")
    #: variables and answers that one sequence waits for at a time
    max_waits: int = limit(64, "variables at a time", "result")
    #: the largest top_logprobs that is served
    max_top_logprobs: int = limit(64, "tokens", "at most this many get log-probabilities")
    #: tokens in a prompt
    max_prompt_tokens: int = limit(4 << 20, "tokens", "the sequence does not start")
    #: bytes that one call of tokenize accepts: the worst text needs about 5 us per byte
    max_tokenize_bytes: int = limit(4 << 10, "bytes", "result")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of a worker process."""

    #: bytes of memoised init snapshots, for all controllers together
    snapshot_bytes: int = limit(256 << 20, "bytes", "the oldest one of the owner with the most is dropped")
    #: number of memoised init snapshots: each takes a file descriptor
    max_templates: int = limit(256, "snapshots", "the oldest one of the owner with the most is dropped")
    #: compiled controllers that stay loaded although no sequence and no template needs them
    max_programs: int = limit(64, "controllers", "the oldest one of the owner with the most is unloaded")
    #: live sequences; each reserves 4 GiB of address space, of which there are 128 TiB
    max_sequences: int = limit(4096, "sequences", "further sequences do not start")
    #: live sequences, and bytes of snapshots, that belong to one owner
    owner_sequences: int = limit(3072, "sequences", "further sequences do not start: owner_limit")
    owner_snapshot_bytes: int = limit(192 << 20, "bytes", "the owner's least recently used one is dropped")
    #: CPU time of all of an owner's `aici_pre_process` and `aici_post_process` calls in one step of an
    #: engine, since every sequence of the step waits for them: 150 calls of 20 us. Does not apply while no
    #: other owner has sequences
    owner_critical_ms: float = work(3.0, "ms a step", "further sequences of the owner are late")
    #: bytes of all variables of an owner's live requests, and of output that clients have not received yet
    owner_variable_bytes: int = limit(128 << 20, "bytes", "owner_limit, for the sequence that writes")
    owner_log_bytes: int = limit(32 << 20, "bytes", "the rest is dropped, and the log says so")
    #: memory of all guests in one worker: the pages that guests have changed, the prompts, and each snapshot
    #: counted once even if several guests share it. `share_memory` computes the default at the daemon's start
    worker_memory_bytes: int = limit(
        0, "bytes, 0: share of free RAM", "the largest sequence of the owner with most ends: space"
    )
    #: memory of one owner's guests in one worker; by default half of the worker's limit
    owner_memory_bytes: int = limit(
        0, "bytes, 0: half of a worker's", "the owner's largest sequence ends: owner_limit"
    )
    #: idle CPU time that the builder spends on filling the tables of one snapshot ahead of time
    #: (`aici_warm`), all stages together; 0 leaves the tables empty
    warm_budget_ms: int = work(1500, "ms a snapshot", "its tables stay partly filled")
    #: bytes by which warming may grow one snapshot
    warm_bytes: int = limit(4 << 20, "bytes a snapshot", "its tables stay partly filled")
    #: messages that wait for a client that does not read
    max_outbox: int = limit(1024, "messages", "the client is dropped")
    #: a worker that does not answer a ping for this long is killed and replaced; time that the worker spends
    #: waiting for a processor does not count
    silence_seconds: int = work(10, "s", "the worker is killed and replaced")


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Limits of the daemon, for all clients and for each owner."""

    #: with --isolate-owners: how long an owner's worker without sequences is kept. Starting one takes 0.1 s
    worker_idle_s: float = limit(300.0, "s", "with --isolate-owners, an idle worker is ended")
    #: bytes of stored modules and scripts charged to one owner, also after a restart: those that the
    #: owner was the first to upload and has not removed. Each is charged at least `MIN_UPLOAD`
    owner_upload_bytes: int = limit(1 << 30, "bytes", "further uploads are refused: owner_limit")
    #: tags that one owner may have: all tags are in one file, which every change rewrites
    owner_tags: int = limit(1000, "tags", "further tags are refused: owner_limit")
    #: CPU time for compiling modules and vocabularies: all the time of one processor, since an owner who
    #: needs more makes others wait. Unlike bytes, this allowance renews itself
    owner_compile_s: float = limit(
        3600.0, "s of CPU time an hour", "owner_limit, until earlier use is an hour old"
    )
    #: concurrent compilations: each may take 2 GiB and a processor, in the background
    max_compilations: int = limit(3, "at a time, at least 1", "further compilations wait; owners take turns")
    owner_compilations: int = limit(2, "at a time, at least 1", "the owner's further compilations wait")
    #: compilations that wait: each holds its module in memory
    owner_queue: int = limit(16, "compilations", "further uploads are refused: owner_limit")
    #: new arguments for which the builder runs `aici_init` concurrently, in turns: each has a guest in memory
    max_builds: int = limit(16, "at a time, at least 1", "further arguments wait; owners take turns")
    owner_builds: int = limit(2, "at a time, at least 1", "the owner's further arguments wait")
    #: new arguments that wait for the builder: more than an engine requests at a time
    owner_build_queue: int = limit(64, "new arguments", "further arguments are refused: owner_limit")
    #: bytes of modules and of new arguments that wait in memory: 16 of the largest modules
    owner_queue_bytes: int = limit(256 << 20, "bytes", "further calls are refused: owner_limit")
    #: how long a call of a controller may take
    call_seconds: float = limit(60.0, "s", "the call fails (timeout), and is cancelled")
    #: bytes of the answer to a call
    answer_bytes: int = limit(256 << 10, "bytes", "the call fails (its answer is too long)")
    #: calls of all of an owner's requests that are answered at the same time
    owner_calls: int = limit(256, "calls at a time", "further calls fail: owner_limit")
    #: how long a run waits for a message
    receive_seconds: float = limit(3600.0, "s", "the wait for a message fails (timeout)")
    #: messages to an owner's runs that these have not received yet; each counts 128 bytes more
    owner_message_bytes: int = limit(16 << 20, "bytes", "further messages are refused: owner_limit")
    #: registered vocabularies, and bytes of their images and tokenizers. 262 k tokens: 10 MB and a tokenizer
    max_vocabularies: int = limit(64, "vocabularies", "an unused one is dropped; if all are in use: space")
    vocabulary_bytes: int = limit(1 << 30, "bytes", "an unused one is dropped; if all are in use: space")
    owner_vocabularies: int = limit(
        16, "vocabularies", "the owner's unused ones are dropped; else owner_limit"
    )
    owner_vocabulary_bytes: int = limit(
        512 << 20, "bytes", "the owner's unused ones are dropped; else owner_limit"
    )


def share_memory(settings: WorkerSettings, processes: int, free: int) -> WorkerSettings:
    """Replaces memory limits of 0 by shares of `free` bytes; `processes` counts workers and builders.

    Reserves one more share for memoised snapshots, which the processes of a daemon share.
    """
    share = max(MIN_WORKER_MEMORY, int(free * GUESTS_SHARE) // (processes + 1))
    worker = settings.worker_memory_bytes or share
    owner = settings.owner_memory_bytes or worker // 2
    found = replace(settings, worker_memory_bytes=worker, owner_memory_bytes=owner)
    if settings.snapshot_bytes == WorkerSettings().snapshot_bytes:  # nobody has set it
        found = replace(
            found,
            snapshot_bytes=min(settings.snapshot_bytes, share),
            owner_snapshot_bytes=min(settings.owner_snapshot_bytes, share * 3 // 4),
        )
    return found


#: fraction of the memory free at the daemon's start that all guests together may use. The rest is left to
#: the engine, which may load its model later, and to other programs
GUESTS_SHARE = 0.5
#: the least memory that a worker's guests get: enough for one guest at its limit
MIN_WORKER_MEMORY = 64 << 20
#: minimum bytes charged for an upload: each has a file, a description, and a row in the table of claims
MIN_UPLOAD = 1 << 16
#: maximum bytes of a description file: a larger file is not a description
MAX_DESCRIPTION = 1 << 18
#: descriptions in one page of a list, and bytes after which the page ends: a few milliseconds of the
#: supervisor, which does nothing else meanwhile
LIST_PAGE, LIST_PAGE_BYTES = 256, 1 << 20
#: fractions of `warm_budget_ms` after which a snapshot is taken again: early, and with most tables filled
WARM_STAGES = (1 / 30, 1 / 5, 1.0)
#: fraction of `warm_budget_ms` in which the builder computes what an ended sequence has found
LEARN_PART = 1 / 5
#: what a sequence has found: bytes, guests and answers that wait in a worker, and answers that wait for the
#: builder for each owner
MAX_FOUND_BYTES, MAX_PROFILES, MAX_LEARNING = 32 << 10, 8, 16
#: bytes of arguments with which one message reports calls: the rest follows with the next one
MAX_CALLS_BYTES = 256 << 10
#: calls that one program may offer to answer, the bytes that describe them, and offers of one connection
MAX_OFFERED, MAX_OFFER_BYTES, MAX_OFFERS = 256, 1 << 20, 1 << 14
#: sources of calls that one program may name
MAX_SOURCES = 256
#: bytes of events of calls that a connection has yet to take; each counts 16 KiB beside its contents. An
#: owner has half of it at most (`Desk.is_full`), and gets no more calls beyond
MAX_CALL_EVENT_BYTES = 64 << 20
#: calls that one message of a worker reports: the supervisor does nothing else for so many times 50 us
MAX_NEWS = 1 << 7
#: characters of a call's name, and of a run's
MAX_CALL_NAME, MAX_RUN_NAME = 128, 64
#: bytes of variables that one answer reports: a millisecond of copying, for which the whole step waits. The
#: rest follows with the next step. A sequence that has ended has no next step: its limit, the second, is
#: larger, and the rest is not reported. A message of more than 64 MiB could not be read
MAX_REPORTED_BYTES, MAX_LAST_BYTES = 1 << 20, 16 << 20
#: how often a waiting process checks that its peer is alive; deaths are reported within 100 ms
PEER_CHECK_SECONDS = 0.05
#: pause before the second attempt to replace a process that has died; it doubles with each failed attempt
RESPAWN_SECONDS = 0.1
#: the longest such pause. A process that has lived for longer than this is replaced at once when it dies
RESPAWN_MAX_SECONDS = 10.0
#: ended guests of a worker that wait for others with the same argument; each takes less than 0.5 MiB
MAX_SPARES = 32
#: interval at which an idle worker wakes
IDLE_WAIT_SECONDS = 0.5
#: how long the supervisor waits for a worker to read a message
SEND_SECONDS = 1
#: how long a daemon may be silent when its client has asked it to end; then it is killed
CLOSE_SECONDS = 2.0
#: how long a worker may take to exit on request; then it is killed
STOP_SECONDS = 0.5
#: how long a daemon or a worker may be silent while it starts, in time of the reference machine (importing
#: wasmtime takes seconds of CPU time)
START_SECONDS = 60.0
#: how long the supervisor may be silent while a client waits for it, or leave a message unread
CALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """All settings that a worker receives when it starts."""

    limits: Limits = field(default_factory=Limits)
    request: RequestLimits = field(default_factory=RequestLimits)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    #: how much slower this machine is than the reference machine, at least 1; the limits allow for it
    pace: float = 1.0
    #: the folder of compiled modules, which is the working directory of workers
    code: str = ""
    #: format of the workers' logs, one of `aicirt.system.logs.FORMATS`
    log_format: str = "text"
    #: the user that workers run as; None for the daemon's user
    user: User | None = None

    @classmethod
    def with_overrides(cls, overrides: Mapping[str, float], pace: float = 1.0) -> WorkerConfig:
        """Returns the defaults for a machine of this pace, with some limits replaced by name.

        Replacements hold as they are, on any machine. Raises ValueError for an unknown name or an invalid
        amount.
        """
        default = cls()
        groups = ("limits", "request", "worker", "daemon")
        parts: dict[str, Any] = {name: _at(pace, getattr(default, name)) for name in groups}
        for name, value in overrides.items():
            for group, part in parts.items():
                kinds = {limit.name: type(getattr(part, limit.name)) for limit in fields(part)}
                if name in kinds:
                    parts[group] = replace(part, **{name: _checked_amount(name, value, kinds[name])})
                    break
            else:
                known = sorted(limit.name for part in parts.values() for limit in fields(part))
                raise ValueError(f"there is no limit {name!r}; known: {', '.join(known)}")
        return cls(**parts, pace=pace)

    def to_json(self) -> str:
        """Returns the settings as JSON, for the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """Reads the settings that `to_json` has written."""
        data = json.loads(text)
        user = data.pop("user")
        return cls(
            Limits(**data.pop("limits")),
            RequestLimits(**data.pop("request")),
            WorkerSettings(**data.pop("worker")),
            DaemonSettings(**data.pop("daemon")),
            user=User(**user) if user else None,
            **data,
        )


def _at(pace: float, limits: Any) -> Any:
    """Returns limits with those on a fixed amount of work multiplied by the pace."""
    paced = [item.name for item in fields(limits) if item.metadata.get("paced")]
    usual = {name: getattr(limits, name) for name in paced}
    return replace(limits, **{name: type(value)(value * pace) for name, value in usual.items()})


def _checked_amount(name: str, value: float, kind: type[int] | type[float]) -> int | float:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value:g}; it must be 0 or a positive number")
    if kind is int and value != int(value):
        raise ValueError(f"{name} is {value:g}; it must be a whole number")
    return kind(value)
