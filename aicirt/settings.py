"""Limits, intervals and settings of the runtime, in one place, each with its reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from aicirt.system.user import User


def limit(default: float, unit: str, beyond: str) -> Any:
    """A field of a dataclass of limits: its default, its unit, and what happens beyond it."""
    return dataclasses.field(default=default, metadata={"unit": unit, "beyond": beyond})


def describe(limits: type[Any]) -> Iterator[tuple[str, str, str]]:
    """(name, default with its unit, what happens beyond it) of every field of a dataclass of limits."""
    for item in dataclasses.fields(limits):
        default: Any = item.default
        yield item.name, _amount(default, item.metadata["unit"]), item.metadata["beyond"]


def _amount(value: float, unit: str) -> str:
    if unit.startswith("bytes"):
        size, name = (value / (1 << 20), "MiB") if value >= 1 << 20 else (value / (1 << 10), "KiB")
        if size >= 1:
            unit = f"{unit} ({size:g} {name})"
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:g} {unit}"


#: bytes of a WebAssembly page, the unit of memory.grow
WASM_PAGE = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one guest. Times are CPU time of the guest, in milliseconds."""

    #: linear memory without shared mappings. A regex at 262 k tokens needs about 1 MiB; a
    #: script interpreter 1-16 MiB. Memory is only paid for when touched.
    memory_bytes: int = limit(
        64 << 20, "bytes", "memory.grow fails; if the controller then traps, memory_limit"
    )
    #: entries of all tables: one per function whose address is taken; large programs have 10 k
    table_elements: int = limit(20_000, "entries", "table.grow fails")
    #: mutable globals: C has one, AssemblyScript 14; each takes a microsecond of every clone
    mutable_globals: int = limit(200, "globals", "the module is refused")
    #: exports. Compilers make tens. A worker pauses while it loads a module: about 1.5 us for each export
    exports: int = limit(500, "exports", "the module is refused")
    #: names of all exports together. Loading takes 2 ms for each MB of them
    export_bytes: int = limit(64 << 10, "bytes of names", "the module is refused")
    #: functions. Large programs have 10 k. Loading takes 35 ns for each
    functions: int = limit(100_000, "functions", "the module is refused")
    #: types, globals, imports, tags and segments, of each kind; compilers make tens, and loading,
    #: instantiating and describing a module takes microseconds for each (types: 9 us). Also parameters and
    #: results of all types together: 45 ns for each
    items: int = limit(5_000, "of each kind", "the module is refused (types, globals, imports, segments...)")
    #: tables: one of functions, one of exceptions or references
    tables: int = limit(4, "tables", "the module is refused")
    #: a module's file. An interpreter is 1 MB; compiling costs about 1.3 s per MB
    module_bytes: int = limit(16 << 20, "bytes", "the module is refused")
    #: `aici_init`, `aici_init_prompt` and the start functions: may build large tables
    init_ms: float = limit(1000.0, "ms", "time_limit")
    #: on the critical path between two forward passes. A sequence may save up what it does not use, as far as
    #: `critical_saved_ms`
    pre_ms: float = limit(1.0, "ms a step", "time_limit, once what was saved is used too")
    #: runs beside the forward pass, which takes about this long
    mid_ms: float = limit(20.0, "ms a step", "the sequence is late, see max_late_steps")
    #: what slow host functions (tokenize) may take in one `aici_mid_process` besides, which cannot be
    #: interrupted. In the other callbacks their time is the guest's: everybody waits for it there
    mid_host_ms: float = limit(20.0, "ms of tokenize a step", "time_limit")
    #: on the critical path between two forward passes, as `pre_ms`
    post_ms: float = limit(1.0, "ms a step", "time_limit, once what was saved is used too")
    #: what a sequence has of both at the start, and may save: a call that takes long once in a while, or that
    #: a busy machine interrupts, is not ended. Others wait so long at most
    critical_saved_ms: float = limit(2.0, "ms", "more is not saved; pre_ms + post_ms if that is more")
    #: one call of `aici_warm`. Nobody waits for it, but only between two calls there is a state to keep. A
    #: mask of a large vocabulary takes 0.1 to 1 ms, tokens that are sure to come take up to 10 ms to find
    warm_ms: float = limit(50.0, "ms a call", "the snapshot stays as it was")
    #: read-only mappings (the vocabulary image: 10 MB at 262 k tokens), counted apart
    shared_bytes: int = limit(256 << 20, "bytes", "memory_limit (the vocabulary, which all share)")


#: Stack of Wasm code. wasmtime's default; a thread needs this much and `STACK_MARGIN` more.
WASM_STACK = 512 << 10
#: Stack that host functions (Python) may need on top of the Wasm stack. Wasm running out of
#: stack within less than this of a thread's end kills the process.
STACK_MARGIN = 256 << 10
#: Stack of a fiber: Wasm and, on the same stack, host functions and the epoch callback.
FIBER_STACK = 2 << 20
#: Period of the epoch ticker: the unit in which time limits are looked at. Each tick costs
#: about 25 us of another thread while a guest runs.
TICK_MS = 1.0


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one request (a sequence and all its forks) in a worker."""

    #: live sequences that a controller may fork into; the original system allowed 16
    max_forks: int = limit(16, "sequences", "fork_limit")
    #: late steps in a row before a sequence is ended: 10 x 20 ms is half the time of a slow token
    max_late_steps: int = limit(
        10, "steps in a row", "late; time_limit if it has used all of its time in them"
    )
    #: wall-clock time after which a step is answered with what is ready, milliseconds; well above
    #: mid_ms, since the rows of one step share a core
    step_deadline_ms: int = limit(100, "ms on the clock", "sequences that are not ready are late")
    #: wall-clock time that an engine that has its logits waits for the rest of a step's rows once some
    #: are there, milliseconds (a tick of at most 1 ms may be added). A slower sequence sits this step out,
    #: and no other sequence waits for it
    step_grace_ms: float = limit(0.5, "ms on the clock", "late, if the engine waits and others are ready")
    #: rounds that all sequences of a request may stay suspended before it is a deadlock
    max_suspended_steps: int = limit(1000, "steps in a row", "deadlock, if all sequences are suspended")
    #: rounds in a row in which no token comes or goes, though something is done: all sequences of a request
    #: are suspended and write variables, or a sequence splices nothing. Waiting for others in this way is
    #: legitimate; 10 000 rounds are minutes of a model's time
    max_idle_steps: int = limit(10_000, "steps in a row", "livelock, if no token comes or goes")
    #: tokens of one splice; longer forced text goes in several steps
    max_ff_tokens: int = limit(4096, "tokens", "result")
    #: log text per sequence that is kept between two steps
    log_bytes: int = limit(64 << 10, "bytes a step", "the rest is dropped, and the log says so")
    #: shared variables: number, length of a name, bytes of all names and values together
    max_variables: int = limit(1024, "variables", "variable_limit")
    max_variable_name: int = limit(256, "bytes", "result")
    max_variable_bytes: int = limit(1 << 20, "bytes", "variable_limit")
    #: the largest top_k that is answered
    max_top_k: int = limit(64, "tokens", "no more are told with their log-probabilities")
    #: tokens of a prompt
    max_prompt_tokens: int = limit(4 << 20, "tokens", "the sequence does not start")
    #: bytes that one call of tokenize may take: the worst text needs about 5 us a byte
    max_tokenize_bytes: int = limit(4 << 10, "bytes", "result")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of a worker process."""

    #: bytes of memoised init snapshots, all controllers together
    snapshot_bytes: int = limit(256 << 20, "bytes", "the least recently used one is made again if need be")
    #: how many of them: each is a file descriptor
    max_templates: int = limit(256, "snapshots", "the least recently used one is made again if need be")
    #: compiled controllers that stay loaded though no sequence and no template needs them
    max_programs: int = limit(64, "controllers", "the least recently used one is loaded again if need be")
    #: live sequences; each reserves 4 GiB of address space, of which there are 128 TiB
    max_sequences: int = limit(4096, "sequences", "further ones do not start")
    #: those of them, and of the snapshots' bytes, that belong to one owner
    owner_sequences: int = limit(3072, "sequences", "further ones do not start: owner_limit")
    owner_snapshot_bytes: int = limit(192 << 20, "bytes", "the owner's least recently used one goes")
    #: CPU time of all `aici_pre_process` and `aici_post_process` of an owner in one step of an engine, as
    #: everybody in the step waits for them: 150 calls of 20 us. No limit where no other owner has sequences
    owner_critical_ms: float = limit(3.0, "ms a step", "further sequences of the owner are late")
    #: bytes of all variables of an owner's live requests, and of their output that clients have not got yet
    owner_variable_bytes: int = limit(128 << 20, "bytes", "owner_limit, for who writes")
    owner_log_bytes: int = limit(32 << 20, "bytes", "the rest is dropped, and the log says so")
    #: memory of all guests in one worker: the pages that they have changed, each snapshot that several share
    #: once, and the prompts. The default is computed when the daemon starts: see `share_memory`
    worker_memory_bytes: int = limit(
        0, "bytes, 0: by the free memory", "the largest sequence of who has most ends: space"
    )
    #: that of one owner's guests in one worker; by default half of the worker's
    owner_memory_bytes: int = limit(
        0, "bytes, 0: half of a worker's", "the owner's largest sequence ends: owner_limit"
    )
    #: CPU time of the builder for filling one snapshot's tables ahead (`aici_warm`), all stages together, in
    #: which it has nothing else to do; 0: they stay empty
    warm_budget_ms: int = limit(1500, "ms a snapshot", "its tables stay as far as they are filled")
    #: bytes that one snapshot may grow by
    warm_bytes: int = limit(4 << 20, "bytes a snapshot", "its tables stay as far as they are filled")
    #: messages waiting for a client that does not read; then it is dropped
    max_outbox: int = limit(1024, "messages", "the client is dropped")
    #: a worker that does not answer a ping for this long is killed and replaced; time in which it waits for a
    #: processor does not count
    silence_seconds: int = limit(10, "s", "the worker is killed and replaced")


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Limits of the daemon, for all clients and for each owner."""

    #: with --isolate-owners: how long an owner's worker stays without sequences. Starting one takes a second
    worker_idle_s: float = limit(300.0, "s", "with --isolate-owners, an idle worker is ended")
    #: bytes of stored modules and scripts that count for one owner, also after a restart: those that the
    #: owner was the first to upload, and has not removed. Each counts `LEAST_UPLOAD` at least
    owner_upload_bytes: int = limit(1 << 30, "bytes", "further uploads are refused: owner_limit")
    #: tags that one owner may have: all of them are in one file, which each change writes anew
    owner_tags: int = limit(1000, "tags", "further ones are refused: owner_limit")
    #: CPU time of compiling modules and vocabularies. As much as one processor has: who needs more has others
    #: wait. Unlike bytes it comes back
    owner_compile_s: float = limit(3600.0, "s of CPU time an hour", "owner_limit, until there is some again")
    #: compilations at a time: each may take 2 GiB and a processor, in the background
    max_compilations: int = limit(3, "at a time, at least 1", "further ones wait; owners take turns")
    owner_compilations: int = limit(2, "at a time, at least 1", "further ones of the owner wait")
    #: each has its module in memory
    owner_queue: int = limit(16, "compilations", "further ones are refused: owner_limit")
    #: new arguments that the builder reads at a time, a slice of each in turn: each has a guest in memory
    max_builds: int = limit(16, "at a time, at least 1", "further ones wait; owners take turns")
    owner_builds: int = limit(2, "at a time, at least 1", "further ones of the owner wait")
    #: more than an engine asks for at a time
    owner_build_queue: int = limit(64, "new arguments", "further ones are refused: owner_limit")
    #: modules, and new arguments, that wait in memory: 16 of the largest modules
    owner_queue_bytes: int = limit(256 << 20, "bytes", "further ones are refused: owner_limit")
    #: registered vocabularies, and bytes of their images and tokenizers. 262 k tokens: 10 MB and a tokenizer
    max_vocabularies: int = limit(64, "vocabularies", "one that no client uses goes, or else space")
    vocabulary_bytes: int = limit(1 << 30, "bytes", "one that no client uses goes, or else space")
    owner_vocabularies: int = limit(16, "vocabularies", "the same among the owner's, or else owner_limit")
    owner_vocabulary_bytes: int = limit(512 << 20, "bytes", "the same among the owner's, or else owner_limit")


def share_memory(settings: WorkerSettings, processes: int, free: int) -> WorkerSettings:
    """Replaces memory limits of 0 by shares of `free` bytes for so many workers and builders.

    One more share is for memoised snapshots, which the processes of a daemon share.
    """
    share = max(LEAST_WORKER_MEMORY, int(free * GUESTS_SHARE) // (processes + 1))
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


#: part of the memory that is free when the daemon starts that all guests together may use. The rest is for
#: the engine, which may load its model later, and for other programs
GUESTS_SHARE = 0.5
#: the least that a worker's guests get: that of one full guest
LEAST_WORKER_MEMORY = 64 << 20
#: bytes that an upload counts at least: each is a file, a description, and a row in the table of claims
LEAST_UPLOAD = 1 << 16
#: bytes of the file with a description: more cannot be one
MOST_DESCRIPTION = 1 << 18
#: descriptions in one page of a list, and bytes after which it ends: a few milliseconds of the supervisor,
#: which does nothing else meanwhile
LIST_PAGE, LIST_PAGE_BYTES = 256, 1 << 20
#: parts of `warm_budget_ms` after which a snapshot is taken again: soon, and when most is there
WARM_STAGES = (1 / 30, 1 / 5, 1.0)
#: of a request that moves to another worker: pages that its guests have changed, and what else belongs to it.
#: Copying takes a few milliseconds, in which neither worker does anything else
MOST_MOVED_BYTES = 16 << 20
#: of variables that one answer tells of: a millisecond of copying, for which the whole step waits. What is
#: beyond comes with the next step; not of a sequence that has ended, so for those there is more, and what is
#: beyond that is not told. A message of more than 64 MiB could not be read
MOST_TOLD_BYTES, MOST_LAST_BYTES = 1 << 20, 16 << 20
#: how often a waiter looks whether its peer lives; deaths are reported within 100 ms
PEER_CHECK_SECONDS = 0.05
#: pause before the second attempt to replace a process that has died; it doubles with each that fails
RESPAWN_SECONDS = 0.1
#: the longest pause. A process that has lived for longer than this is replaced at once when it dies
RESPAWN_MAX_SECONDS = 10.0
#: a worker that has nothing to do wakes this often
IDLE_WAIT_SECONDS = 0.5
#: how long the supervisor waits for a worker to read what it is told, whole seconds
SEND_SECONDS = 1
#: how long a worker may take to end when it is asked to; then it is killed
STOP_SECONDS = 0.5
#: how long starting the daemon may take (a cold machine imports wasmtime in seconds)
START_SECONDS = 60.0
#: a call on the control socket; uploads have their own, longer limit in the compile child
CALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """All settings that a worker receives when it starts."""

    limits: Limits = field(default_factory=Limits)
    request: RequestLimits = field(default_factory=RequestLimits)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    #: where compiled modules are; the folder in which workers are started
    code: str = ""
    #: how they write their log, one of `aicirt.system.logs.FORMATS`
    log_format: str = "text"
    #: as whom they run, if not as the daemon's user
    user: User | None = None

    @classmethod
    def with_overrides(cls, overrides: Mapping[str, float]) -> WorkerConfig:
        """The defaults with some limits replaced by name.

        Raises ValueError for an unknown name, and for what is no amount of that limit.
        """
        default = cls()
        groups = ("limits", "request", "worker", "daemon")
        parts: dict[str, Any] = {name: getattr(default, name) for name in groups}
        for name, value in overrides.items():
            for group, part in parts.items():
                kinds = {limit.name: type(getattr(part, limit.name)) for limit in fields(part)}
                if name in kinds:
                    parts[group] = replace(part, **{name: _checked_amount(name, value, kinds[name])})
                    break
            else:
                known = sorted(limit.name for part in parts.values() for limit in fields(part))
                raise ValueError(f"there is no limit {name!r}; known: {', '.join(known)}")
        return cls(**parts)

    def to_json(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """The other way round."""
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


def _checked_amount(name: str, value: float, kind: type[int] | type[float]) -> int | float:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value:g}; it must be 0 or a positive number")
    if kind is int and value != int(value):
        raise ValueError(f"{name} is {value:g}; it must be a whole number")
    return kind(value)
