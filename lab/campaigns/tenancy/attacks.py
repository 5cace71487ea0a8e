"""The attacks of the campaign `tenants`. Each is a round that repeats at a bounded rate."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from lab.attacks.modules import straight_module
from lab.campaigns.tenancy import modules
from lab.campaigns.tenancy.attacker import Attacker
from lab.campaigns.tenancy.client import Client, outcomes

#: forks as often as a request may; each fork fills its memory
_FILLING = """\
from aici import fork, gen
async def main():
    await fork(16)
    kept = []
    while True:
        kept.append(b"x" * 8000000)
        await gen(max_tokens=1)
"""
#: forks in each step and ends the forks, which the answer reports
_FORKING = """\
from aici import fork
async def main():
    while True:
        if await fork(4):
            print("x" * 50)
            return
"""
#: makes calls without awaiting any
_CALLING = """\
from aici import call, next_step
async def main():
    while True:
        for i in range(20):
            call("ask", "x" * 60000)
        await next_step()
"""
#: sends messages to itself, which it does not receive, and to runs of others
_SENDING = """\
from aici import CallError, arg, send
async def main():
    for i in range(200):
        try:
            await send(("ann", "bob", arg)[i % 3], "x" * 60000)
        except CallError as error:
            print(error.code)
"""
#: waits for a message that nobody sends
_WAITING = """\
from aici import fork, receive
async def main():
    await fork(4)
    await receive()
"""
_BODY_BYTES = 4 << 20
#: concurrent half-sent requests of one address, and how long they are held
_CONNECTIONS, _HELD_SECONDS = 250, 8.0


@dataclass(frozen=True)
class Attack:
    """A row of the table."""

    name: str
    #: runs one round; returns the outcomes of its requests
    does: Callable[[Attacker], Counter[str]]
    #: concurrent rounds
    threads: int = 1
    #: seconds between two rounds
    pause: float = 0.5


def explode_names(attacker: Attacker) -> Counter[str]:
    """Traps in a function whose demangled name doubles with each level."""
    module = attacker.uploaded("names", modules.exploding_name)
    return attacker.run(controller=module, n=4)


def run_straight_code(attacker: Attacker) -> Counter[str]:
    """Runs 400 000 chained loads on the critical path of a step, in eight sequences."""
    module = attacker.uploaded("straight", straight_module)
    return attacker.run(controller=module, n=8, max_tokens=100)


def print_much(attacker: Attacker) -> Counter[str]:
    """Prints more than a log can hold in each step of four sequences."""
    return attacker.hostile("mid print_much", n=4, max_tokens=200)


def read_nothing(attacker: Attacker) -> Counter[str]:
    """Requests a stream of four sequences that print much, and never reads it."""
    call = {"controller": attacker.guest(), "controller_arg": "mid print_much"}
    body = {**call, "prompt": "x", "n": 4, "stream": True}
    content = json.dumps(body).encode()
    with attacker.client.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(attacker.client.head("/v1/run", len(content)) + content)
        attacker.stop.wait(20)
    return Counter(["left"])


def fill_memory(attacker: Attacker) -> Counter[str]:
    """Runs a script whose forks all fill their memory."""
    return attacker.run(script={"language": "python", "source": _FILLING}, max_tokens=100)


def start_slowly(where: str, attacker: Attacker) -> Counter[str]:
    """Starts a controller that never returns from a function before the first step, with a new argument."""
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
    """Uploads a module with 15 MB of names, and requests the list of controllers."""
    wasm = modules.long_exports(attacker.number())
    found = outcomes(*attacker.client.ask("POST", "/v1/controllers", wasm))
    return found + outcomes(*attacker.client.ask("GET", "/v1/controllers"))


def list_much(attacker: Attacker) -> Counter[str]:
    """Requests the list of controllers."""
    return outcomes(*attacker.client.ask("GET", "/v1/controllers"))


def send_bodies_without_token(attacker: Attacker) -> Counter[str]:
    """Sends large bodies of nested JSON without a token."""
    body = b"[" * _BODY_BYTES
    found = outcomes(*attacker.nobody.ask("POST", "/v1/run", body))
    return found + outcomes(*attacker.nobody.ask("POST", "/v1/chat/completions", body))


def send_half(client: int, sent: Callable[[Client], bytes], attacker: Attacker) -> Counter[str]:
    """Holds many connections, each with half a request."""
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
    """Returns a head and a part of the body."""
    return client.head("/v1/run", _BODY_BYTES) + b" " * 65536


def half_head(client: Client) -> bytes:
    """Returns a part of a head."""
    return client.head("/v1/run", 0)[:-10]


def hold_places(attacker: Attacker) -> Counter[str]:
    """Requests more long answers with expensive sampling than the server runs at once."""
    costly = {"temperature": 1.5, "top_p": 0.99, "top_k": 40_000, "top_logprobs": 20, "seed": 1}
    return attacker.run(n=4, max_tokens=300, **costly)


def misspell_fields(attacker: Attacker) -> Counter[str]:
    """Sends 255 misspelled fields."""
    fields = {f"frequency_penxxxxxxx_{number}": 1 for number in range(255)}
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields}
    return outcomes(*attacker.client.ask("POST", "/v1/chat/completions", body))


def take_ids_as_tags(attacker: Attacker) -> Counter[str]:
    """Tags a hostile module with the id of another user's controller, or with the beginning of the id."""
    module = attacker.uploaded("names", modules.exploding_name)
    found: Counter[str] = Counter()
    for tag in (attacker.popular[:12], attacker.popular[:20], attacker.popular, "regex", "pyctrl"):
        found += outcomes(*attacker.client.ask("PUT", f"/v1/tags/{tag}", {"controller": module}))
    return found


def evaluate_much(attacker: Attacker) -> Counter[str]:
    """Requests completions of a prefix with as many evaluations of the model as allowed, and with more."""
    body = {"context": "def f():\n    ", "prefix": "qzx", "sampler": "exact", "max_new_tokens": 20}
    found = outcomes(*attacker.client.ask("POST", "/cpc", {**body, "max_evals": 4096}))
    return found + outcomes(*attacker.client.ask("POST", "/cpc", {**body, "max_evals": 512}))


def read_long_prompts(attacker: Attacker) -> Counter[str]:
    """Sends prompts that take long to tokenize, and prompts as long as the context."""
    found = attacker.run(prompt="".join(f"W{number} u{number * 7919};" for number in range(20_000)))
    return found + attacker.run(prompt=f"{time.time()} " + "the " * 4000, max_tokens=1)


def fork_for_ever(attacker: Attacker) -> Counter[str]:
    """Forks after a long prompt as often as a request may."""
    script = {"language": "python", "source": _FORKING}
    return attacker.run(script=script, prompt="the " * 2000, max_tokens=1000)


def leave_calls_unanswered(attacker: Attacker) -> Counter[str]:
    """Offers to answer the calls of a script that makes as many as it can, and answers none."""
    body = {"script": {"language": "python", "source": _CALLING}, "calls": [{"name": "ask"}]}
    return hold(attacker, attacker.client, [body] * 4)


def send_much(attacker: Attacker) -> Counter[str]:
    """Sends messages to runs of others, and to a run that does not receive them."""
    name = f"run-{attacker.number()}"
    script = {"language": "python", "source": _SENDING, "arg": name}
    found = attacker.run(script=script, name=name)
    for run in ("ann", "bob", name):
        found += outcomes(*attacker.client.ask("POST", f"/v1/run/messages/{run}", {"value": "x"}))
    return found


def wait_for_ever(attacker: Attacker) -> Counter[str]:
    """Holds more runs that wait for messages than may wait, each with forks and a long prompt."""
    script = {"language": "python", "source": _WAITING}
    bodies = [{"script": script, "name": f"run-{number}"} for number in range(100)]
    return hold(attacker, attacker.client, bodies)


def hold(attacker: Attacker, client: Client, bodies: list[dict[str, object]]) -> Counter[str]:
    """Requests streams of runs with a long prompt, reads none of them, and leaves after a while."""
    found: Counter[str] = Counter()
    with ExitStack() as stack:
        for body in bodies:
            content = json.dumps({"prompt": "the " * 1000, "max_tokens": 500, **body}).encode()
            try:
                connection = stack.enter_context(client.connect(5))
                connection.sendall(client.head("/v1/run", len(content)) + content)
                found["held"] += 1
            except OSError as error:
                found[type(error).__name__] += 1
        attacker.stop.wait(_HELD_SECONDS)
    return found


def convert_texts(attacker: Attacker) -> Counter[str]:
    """Has long texts turned into tokens, and many tokens into texts."""
    text = "".join(f"W{number} u{number * 7919};" for number in range(2000))
    found = outcomes(*attacker.client.ask("POST", "/tokenize", {"prompt": text, "return_token_strs": True}))
    return found + outcomes(*attacker.client.ask("POST", "/detokenize", {"tokens": [100] * 4000}))


def read_pages(attacker: Attacker) -> Counter[str]:
    """Asks without a token, as often as the server answers, for the pages that anybody may read."""
    found: Counter[str] = Counter()
    for path in ("/metrics", "/openapi.json") * 20:
        found += outcomes(*attacker.nobody.ask("GET", path))
    return found


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
    Attack("forks", fork_for_ever, threads=2),
    Attack("calls", leave_calls_unanswered, threads=2),
    Attack("messages", send_much, threads=2),
    Attack("waiting", wait_for_ever),
    Attack("texts", convert_texts, threads=2, pause=0.1),
    Attack("pages", read_pages, threads=2, pause=0.1),
)
