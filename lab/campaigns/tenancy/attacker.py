"""A low-privileged user who attacks a server in many ways at once.

``python -m lab.campaigns.tenancy.attacker PORT TOKEN FOLDER MODULE [NUMBER]`` attacks until its standard
input ends, with all attacks or with attack NUMBER of the table alone. Then it prints the outcomes of each
attack, with their counts, as JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.campaigns.hostile import guest
from lab.campaigns.tenancy.client import Client, RefusedError, code_of, outcomes

#: seconds that attacks have to end
_STOP_SECONDS = 5.0


@dataclass
class Attacker:
    """The user, and the outcomes of the attacks."""

    client: Client
    #: a client without a token
    nobody: Client
    #: two more addresses, for attacks that use up connections
    others: tuple[Client, Client]
    folder: Path
    #: id of a controller that others use
    popular: str
    stop: threading.Event = field(default_factory=threading.Event)
    results: dict[str, Counter[str]] = field(default_factory=dict)
    _modules: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _uploading: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def number(self) -> int:
        """Returns a new number each time."""
        with self._lock:
            self._number += 1
            return self._number

    def run(self, **body: Any) -> Counter[str]:
        """Requests a run; returns its outcomes."""
        body = {"prompt": "x", "stream": False, **body}
        return outcomes(*self.client.ask("POST", "/v1/run", body))

    def hostile(self, arg: str, **body: Any) -> Counter[str]:
        """Requests a run of `guest`; returns its outcomes."""
        return self.run(controller=self.guest(), controller_arg=arg, **body)

    def guest(self) -> str:
        """Returns the id of ``lab/guests/hostile.c``."""
        return self.uploaded("hostile", lambda: guest("hostile", self.folder).read_bytes())

    def uploaded(self, name: str, make: Callable[[], bytes]) -> str:
        """Uploads a module once and returns its id. Raises RefusedError if the server refuses it."""
        with self._uploading:
            if name not in self._modules:
                status, body = self.client.ask("POST", "/v1/controllers", make())
                if status != 201:
                    raise RefusedError(f"{status}_{code_of(body)}")
                self._modules[name] = json.loads(body)["id"]
            return self._modules[name]

    def repeat(self, name: str, does: Callable[[Attacker], Counter[str]], pause: float) -> None:
        """Repeats an attack until `stop` is set."""
        found = self.results.setdefault(name, Counter())
        while not self.stop.is_set():
            with self._lock:
                found["under_way"] += 1
            try:
                ended = does(self)
            except RefusedError as error:
                ended = Counter([str(error)])
            except (OSError, http.client.HTTPException) as error:
                ended = Counter([type(error).__name__])
            with self._lock:
                found.update(ended)
                found["under_way"] -= 1
            self.stop.wait(pause)


def main(port: str, token: str, folder: str, popular: str, only: str = "") -> None:
    """Attacks until standard input ends. `popular`: id of a controller that others use."""
    from lab.campaigns.tenancy.attacks import ATTACKS

    os.nice(10)  # a real attacker would use another machine
    client = Client(int(port), token, "127.0.0.3")
    others = (Client(int(port), token, "127.0.0.4"), Client(int(port), token, "127.0.0.5"))
    attacker = Attacker(client, Client(int(port), "", "127.0.0.3"), others, Path(folder), popular)
    for attack in [ATTACKS[int(only)]] if only else ATTACKS:
        for _ in range(attack.threads):
            words = (attack.name, attack.does, attack.pause)
            threading.Thread(target=attacker.repeat, args=words, daemon=True).start()
    sys.stdin.read()
    attacker.stop.set()
    time.sleep(_STOP_SECONDS if threading.active_count() > 1 else 0)
    print(json.dumps(attacker.results), flush=True)
    os._exit(0)  # some requests under way never end


if __name__ == "__main__":
    main(*sys.argv[1:])
