"""A user's prompt and answer stay in that user's sequences. No shared memory or file contains them."""

from __future__ import annotations

import array
from pathlib import Path

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller

from .conftest import BUDGET, VOCABULARY

#: a guest that copies all tokens to its memory, to a variable and to its log
LEAKY = """
#include <aici.h>
#include <stdio.h>
#include <string.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_pre_result pre;
static aici_mid_result mid;
static uint32_t received[1024], count;
static char text[1024], padding[200000];

static void receive(uint32_t source, uint32_t tokens) {
    aici_read(source, 0, received + count, tokens * 4);
    for (uint32_t i = 0; i < tokens; i++) text[count + i] = (char)received[count + i];
    count += tokens;
    memset(padding, text[0], sizeof padding);
    aici_var_write("received", 8, text, count, AICI_SET, AICI_ANY_VERSION);
    printf("%s\\n", text);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_init) int aici_init(uint32_t n) { return 0; }
AICI_EXPORT(aici_warm) int aici_warm(void) {
    static char all[1 << 16];
    static int calls;
    memset(all, 0, sizeof all);
    uint32_t found = 0;
    for (uint32_t source = 0; source <= AICI_TOKENIZED; source++)
        found += aici_read(source, 0, all + found, 4096);
    memset(padding, 1 + calls, sizeof padding);
    return ++calls < 100;
}
AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    receive(AICI_PROMPT, n);
    return 0;
}
AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    if (arg.num_tokens) receive(AICI_TOKENS, arg.num_tokens);
    pre = (aici_pre_result){sizeof pre, arg.step == 2 ? AICI_FORK : AICI_CONTINUE, 2};
    return &pre;
}
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
"""
PROMPT, ANSWER = b"my PIN is 4711-Xyzzy", b"remember the Plugh cave"


def tokens(text: bytes) -> list[int]:
    return list(text)  # a token for each byte


def forms(text: bytes) -> list[bytes]:
    """Returns the text as bytes, as tokens of 4 bytes each, and as tokens in msgpack."""
    wide = array.array("I", list(text)).tobytes()
    return [text, wide, bytes([0xDC, 0, len(text)]) + text]


def memory_files(pid: int) -> dict[str, bytes]:
    """Returns the contents of the memory files that a process has open."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = str(entry.readlink())
            if name.startswith("/memfd:"):
                found[f"{name} {entry.name}"] = entry.read_bytes()
        except FileNotFoundError:
            continue
    return found


def test_shared_memory_and_files_contain_no_prompt_and_no_answer(tmp_path: Path) -> None:
    source = tmp_path / "leaky.c"
    source.write_text(LEAKY)
    wasm = build_controller(source, tmp_path / "leaky.wasm").path
    with (
        Daemon(workers=1, limits=BUDGET, store=tmp_path / "store") as daemon,
        Runtime(daemon.socket_path) as one,
        Runtime(daemon.socket_path) as other,
    ):
        for runtime in (one, other):
            runtime.register(VOCABULARY)
        module = one.upload(wasm).id
        before = other.instantiate(module, prompt=tokens(b"harmless"))
        seq = one.instantiate(module, prompt=tokens(PROMPT))
        logs = dict(one.begin_step([StepInput(seq)]).wait().logs)
        step = one.begin_step([StepInput(seq, tokens(ANSWER))])
        children = step.wait_pre()[seq].children
        result = step.wait()
        assert PROMPT.decode() in logs[seq] and ANSWER.decode() in result.logs[seq]
        assert result.mid[children[0]].verb == Verb.SAMPLE
        copy = one.clone(seq)
        after = other.instantiate(module, prompt=tokens(b"harmless"))
        steps = [StepInput(before), StepInput(after)]
        assert all(mid.verb == Verb.SAMPLE for mid in other.begin_step(steps).wait().mid.values())

        # this template is built and warmed after the worker has seen the secrets
        one.prepare(module, "again")
        wait_until(lambda: one.health()["templates"]["warm"] >= 2)
        places = memory_files(daemon.pid)
        assert any(name.startswith("/memfd:aici-snapshot") for name in places), "the template is among them"
        for number, link in enumerate(other._links.all):
            places[f"segment {number} of the other client"] = bytes(link.segment.memory)
        for path in (tmp_path / "store").rglob("*"):
            if path.is_file():
                places[str(path)] = path.read_bytes()
        places["the daemon's log"] = daemon.log().encode()
        own = b"".join(bytes(link.segment.memory) for link in one._links.all)
        assert any(form in own for form in forms(PROMPT)), (
            "the search must find the prompt in its own segment"
        )
        for name, data in places.items():
            for secret in (PROMPT, ANSWER):
                assert not any(form in data for form in forms(secret)), name
        one.free([seq, copy, *children])
