"""The attacks of the campaign `tenants`: each a round that is repeated at a bounded rate."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench.attack_modules import straight_module
from bench.campaigns.tenancy import modules
from bench.campaigns.tenancy.attacker import Attacker
from bench.campaigns.tenancy.client import Client, outcomes

#: as many forks as a request may have, each of which fills its memory
_FILLING = """\
from aici import fork, gen
async def main():
    await fork(16)
    kept = []
    while True:
        kept.append(b"x" * 8000000)
        await gen(max_tokens=1)
"""
_BODY_BYTES = 4 << 20
#: idle or half-sent connections of one address at the same time, and how long they are held
_CONNECTIONS, _HELD_SECONDS = 250, 8.0


@dataclass(frozen=True)
class Attack:
    """A row of the table."""

    name: str
    #: one round; what became of its requests
    does: Callable[[Attacker], Counter[str]]
    #: rounds at the same time
    threads: int = 1
    #: seconds between two rounds
    pause: float = 0.5


def explode_names(attacker: Attacker) -> Counter[str]:
    """Traps in a function whose name doubles with each of its levels."""
    module = attacker.uploaded("names", modules.exploding_name)
    return attacker.run(controller=module, n=4)


def run_straight_code(attacker: Attacker) -> Counter[str]:
    """400 000 chained loads on the critical path of a step, in eight sequences."""
    module = attacker.uploaded("straight", straight_module)
    return attacker.run(controller=module, n=8, max_tokens=100)


def print_much(attacker: Attacker) -> Counter[str]:
    """Prints more than a log has room for in each step of four sequences."""
    return attacker.hostile("mid print_much", n=4, max_tokens=200)


def read_nothing(attacker: Attacker) -> Counter[str]:
    """Asks for a stream of four sequences that print much, and never reads it."""
    call = {"controller": attacker.guest(), "controller_arg": "mid print_much"}
    body = {**call, "prompt": "x", "n": 4, "stream": True}
    content = json.dumps(body).encode()
    with attacker.client.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(attacker.client.head("/v1/run", len(content)) + content)
        attacker.stop.wait(20)
    return Counter(["left"])


def fill_memory(attacker: Attacker) -> Counter[str]:
    """A script that forks, each fork of which fills its memory."""
    return attacker.run(script={"language": "python", "source": _FILLING}, max_tokens=100)


def start_slowly(where: str, attacker: Attacker) -> Counter[str]:
    """A new argument whose controller never returns from a function that runs before the first step."""
    return attacker.hostile(f"{where} loop {attacker.number()}")


def leave_while_building(attacker: Attacker) -> Counter[str]:
    """Closes the connection while the controller reads its argument."""
    body = {"controller": attacker.guest(), "controller_arg": f"init loop {attacker.number()}", "prompt": "x"}
    content = json.dumps(body).encode()
    with attacker.client.connect() as connection:
        connection.sendall(attacker.client.head("/v1/run", len(content)) + content)
        attacker.stop.wait(0.1)
    return Counter(["left"])


def upload_long_exports(attacker: Attacker) -> Counter[str]:
    """Uploads a module of 15 MB of names, and asks for the list of controllers."""
    wasm = modules.long_exports(attacker.number())
    found = outcomes(*attacker.client.ask("POST", "/v1/controllers", wasm))
    return found + outcomes(*attacker.client.ask("GET", "/v1/controllers"))


def list_much(attacker: Attacker) -> Counter[str]:
    """Asks for the list of controllers."""
    return outcomes(*attacker.client.ask("GET", "/v1/controllers"))


def send_bodies_without_token(attacker: Attacker) -> Counter[str]:
    """A large body of nested JSON, without a token."""
    body = b"[" * _BODY_BYTES
    found = outcomes(*attacker.nobody.ask("POST", "/v1/run", body))
    return found + outcomes(*attacker.nobody.ask("POST", "/v1/chat/completions", body))


def send_half(client: int, sent: Callable[[Client], bytes], attacker: Attacker) -> Counter[str]:
    """Holds many connections with half a request in each."""
    found: Counter[str] = Counter()
    other = attacker.others[client]
    with ExitStack() as stack:
        for _ in range(_CONNECTIONS):
            try:
                stack.enter_context(other.connect(5)).sendall(sent(other))
                found["held"] += 1
            except OSError as error:
                found[type(error).__name__] += 1
        attacker.stop.wait(_HELD_SECONDS)
    return found


def half_body(client: Client) -> bytes:
    """A head, and a part of the body."""
    return client.head("/v1/run", _BODY_BYTES) + b" " * 65536


def half_head(client: Client) -> bytes:
    """A part of a head."""
    return client.head("/v1/run", 0)[:-10]


def hold_places(attacker: Attacker) -> Counter[str]:
    """Long answers with costly sampling, more of them than there are places."""
    costly = {"temperature": 1.5, "top_p": 0.99, "top_k": 40_000, "top_logprobs": 20, "seed": 1}
    return attacker.run(n=4, max_tokens=300, **costly)


def misspell_fields(attacker: Attacker) -> Counter[str]:
    """255 fields that are nearly right."""
    fields = {f"frequency_penxxxxxxx_{number}": 1 for number in range(255)}
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields}
    return outcomes(*attacker.client.ask("POST", "/v1/chat/completions", body))


def take_ids_as_tags(attacker: Attacker) -> Counter[str]:
    """Names a hostile module as the id of a controller of others begins."""
    module = attacker.uploaded("names", modules.exploding_name)
    found: Counter[str] = Counter()
    for tag in (attacker.popular[:12], attacker.popular[:20], attacker.popular, "regex", "pyctrl"):
        found += outcomes(*attacker.client.ask("PUT", f"/v1/tags/{tag}", {"controller": module}))
    return found


def evaluate_much(attacker: Attacker) -> Counter[str]:
    """A completion of a prefix, with as many evaluations of the model as it may ask for, and with more."""
    body = {"context": "def f():\n    ", "prefix": "qzx", "sampler": "exact", "max_new_tokens": 20}
    found = outcomes(*attacker.client.ask("POST", "/cpc", {**body, "max_evals": 4096}))
    return found + outcomes(*attacker.client.ask("POST", "/cpc", {**body, "max_evals": 512}))


def read_long_prompts(attacker: Attacker) -> Counter[str]:
    """Prompts that take long to be made tokens, and are as long as the context then."""
    found = attacker.run(prompt="".join(f"W{number} u{number * 7919};" for number in range(20_000)))
    return found + attacker.run(prompt=f"{time.time()} " + "the " * 4000, max_tokens=1)


ATTACKS = (
    Attack("names", explode_names),
    Attack("straight_code", run_straight_code),
    Attack("logs", print_much),
    Attack("unread", read_nothing, threads=2),
    Attack("memory", fill_memory, threads=6),
    *(
        Attack(f"slow_{where}", partial(start_slowly, where), threads=2)
        for where in ("start", "arg", "init", "prompt")
    ),
    Attack("leaving", leave_while_building, threads=2, pause=0.1),
    Attack("long_exports", upload_long_exports, pause=10),
    Attack("lists", list_much, pause=1),
    Attack("no_token", send_bodies_without_token, threads=4),
    Attack("half_bodies", partial(send_half, 0, half_body)),
    Attack("half_heads", partial(send_half, 1, half_head)),
    Attack("places", hold_places, threads=4),
    Attack("misspelled", misspell_fields, threads=2),
    Attack("tags", take_ids_as_tags, pause=1),
    Attack("evaluations", evaluate_much, threads=2),
    Attack("prompts", read_long_prompts, threads=2),
)
