"""Character-prefix completion key by key over HTTP, as in editors, compared with prompting a chat model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from lab.servers.ollama import ollama
from lab.servers.server_process import serving

#: options that a plug-in of an editor sends
_REQUEST = {"temperature": 0.5, "top_p": 0.92, "top_k": 50, "max_new_tokens": 12}


@dataclass
class Keystrokes:
    """Results: latencies, and whether suggestions began with the prefix."""

    #: milliseconds from the first keystroke after a context to the first piece of the suggestion
    cold: list[float] = field(default_factory=list)
    #: the same for later keystrokes
    warm: list[float] = field(default_factory=list)
    #: whether suggestions of character-prefix completion began with the prefix
    exact: list[bool] = field(default_factory=list)
    #: whether suggestions of a chat model that was prompted for the prefix did
    asked: list[bool] = field(default_factory=list)


def measure(pairs: Mapping[str, tuple[str, str]], seeds: int) -> Keystrokes:
    """Types each prefix after its context, and draws `seeds` suggestions in both ways."""
    found = Keystrokes()
    with ollama() as other, serving(f"--ollama-url={other.url}") as url, httpx2.Client(timeout=600) as http:
        other.backend = url
        _first_piece(http, url, {"context": "a", "prefix": "b"})  # imports, first forward pass
        for context, prefix in pairs.values():
            for end in range(1, len(prefix) + 1):
                milliseconds = _first_piece(http, url, {"context": context, "prefix": prefix[:end]})
                (found.cold if end == 1 else found.warm).append(milliseconds)
            for seed in range(seeds):
                body = {**_REQUEST, "context": context, "prefix": prefix, "seed": seed}
                answer = http.post(f"{url}/cpc", json=body).raise_for_status().json()
                found.exact.append(answer["suggestion"].startswith(prefix))
                answer = http.post(f"{url}/cpc?backend=ollama", json=body).raise_for_status().json()
                found.asked.append(answer["adhered"])
    return found


def _first_piece(http: httpx2.Client, url: str, body: dict[str, Any]) -> float:
    start = time.perf_counter()
    taken = 0.0
    with http.stream("POST", f"{url}/cpc_stream", json={**_REQUEST, **body}) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line == "event: chunk" and not taken:
                taken = 1000 * (time.perf_counter() - start)
    return taken
