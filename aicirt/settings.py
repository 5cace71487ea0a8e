"""Limits and intervals of the runtime, one place, each with its reason.

Limits of the guest itself (memory, stack, CPU time of each callback) are in `aicirt.wasm.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request (a sequence and all its forks) may use in a worker."""

    #: live sequences that a controller may fork into; the original system allowed 16
    max_forks: int = 16
    #: late steps in a row before a sequence is ended: 10 x 20 ms is half the time of a slow token
    max_late_steps: int = 10
    #: wall-clock time after which a step is answered with what is ready, milliseconds; well above
    #: mid_ms, since the rows of one step share a core
    step_deadline_ms: int = 100
    #: wall-clock time that an engine that has its logits waits for the rest of a step's rows once some
    #: are there, milliseconds: whoever is slower sits this step out, and nobody else waits for it
    step_grace_ms: int = 1
    #: rounds that all sequences of a request may stay suspended before it is a deadlock
    max_suspended_steps: int = 1000
    #: tokens of one splice; longer forced text goes in several steps
    max_ff_tokens: int = 4096
    #: log text per sequence that is kept between two steps
    log_bytes: int = 64 << 10
    #: shared variables: number, length of a name, bytes of all names and values together
    max_variables: int = 1024
    max_variable_name: int = 256
    max_variable_bytes: int = 1 << 20
    #: the largest top_k that is answered
    max_top_k: int = 64
    #: tokens of a prompt
    max_prompt_tokens: int = 4 << 20
    #: bytes that one call of tokenize may take: the worst text needs about 5 us a byte
    max_tokenize_bytes: int = 16 << 10


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker process may keep."""

    #: bytes of memoised init snapshots, all controllers together
    snapshot_bytes: int = 256 << 20
    #: how many of them: each is a file descriptor
    max_templates: int = 256
    #: live sequences; each reserves 4 GiB of address space, of which there are 128 TiB
    max_sequences: int = 4096
    #: messages waiting for a client that does not read; then it is dropped
    max_outbox: int = 1024
    #: a worker that does not answer a ping for this long is killed and replaced
    silence_seconds: int = 10


#: how often a waiter looks whether its peer lives; deaths are reported within 100 ms
PEER_CHECK_SECONDS = 0.05
#: a worker that has nothing to do wakes this often
IDLE_WAIT_SECONDS = 0.5
#: how long the supervisor waits for a worker to read what it is told, whole seconds
SEND_SECONDS = 1
#: how long starting the daemon may take (a cold machine imports wasmtime in seconds)
START_SECONDS = 60.0
#: a call on the control socket; uploads have their own, longer limit in the compile child
CALL_SECONDS = 120.0
