"""Scripts that take all the memory or depth there is end by that, on slow machines too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyaici.testing import Playground
from tests.controllers.script.conftest import PATIENT, WELL, Pair, Play, check, failed


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground(limits=PATIENT) as playground:
        yield playground


BOMBS: list[Pair] = [
    (
        "async def main():\n    x = []\n    while True:\n        x.append(bytes(1000000))\n",
        "export async function main() { const x = []; for (;;) x.push(new Uint8Array(1000000)); }\n",
    ),
    (
        'async def main():\n    x = "ab"\n    while True:\n        x += x\n',
        'export async function main() { let x = "ab"; for (;;) { x += x; x.charCodeAt(1); [...x]; } }\n',
    ),
    (
        "def deep(n):\n    return deep(n + 1)\nasync def main():\n    deep(0)\n",
        "function deep(n) { return deep(n + 1) + 1; }\nexport async function main() { deep(0); }\n",
    ),
    (
        "x = []\nfor i in range(100000):\n    x = [x]\nasync def main():\n    print(x)\n",
        "let x = [];\nfor (let i = 0; i < 100000; i++) x = [x];\n"
        "export async function main() { JSON.stringify(x); }\n",
    ),
    (
        "import json\nasync def main():\n    json.loads('[' * 100000)\n",
        'export async function main() { JSON.parse("[".repeat(100000)); }\n',
    ),
]
#: what they end with, in Python and in JavaScript; what recurses in C ends with the stack of WebAssembly
STACK = "call stack exhausted"
ENDS: list[tuple[str, ...]] = [
    ("MemoryError", "out of memory"),
    ("MemoryError", "out of memory", "invalid string length"),
    ("RuntimeError: maximum recursion depth exceeded", "Maximum call stack size exceeded"),
    (STACK,),
    ("ValueError: more than 256 arrays and objects in each other", "stack overflow", STACK),
]


@pytest.mark.parametrize("number", range(len(BOMBS)), ids=["arrays", "text", "calls", "nesting", "json"])
def test_bombs_end_with_an_error(play: Play, number: int) -> None:
    said = failed(play, BOMBS[number])
    assert any(end in said for end in ENDS[number]), said
    assert len(said.splitlines()) < 80
    assert check(play(WELL, "42")).log == "42\n"
