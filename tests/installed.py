"""Generates a text under a controller with the installed package, through the library and through the server.

``python -I tests/installed.py`` is run outside the checkout, in an environment with only
``pyaici[llama,server]``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pyaici
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.engines.engine import Request
from pyaici.models import default_gguf_path

PATTERN = " [0-9]{2}, [a-z]{3}"
ANSWER = re.compile(PATTERN)
PROMPT = "The answer is"
#: the model's cache; its usual size takes half a second to allocate
CACHE_TOKENS = 1024


def in_process() -> str:
    """Returns a text that the model writes under the controller `regex`."""
    with LlamaModel(load_library(), default_gguf_path()) as model, pyaici.Runtime() as runtime:
        with LlamaEngine(model, runtime, cache_tokens=CACHE_TOKENS) as engine:
            (result,) = engine.run([Request(PROMPT, controller="regex", arg=PATTERN, max_tokens=16)])
    return result.text


def through_server() -> str:
    """Returns a text that `aici serve` generates under a script, and ends the server."""
    script = f"from aici import gen\n\nasync def main():\n    await gen(regex={PATTERN!r})\n"
    body = {
        "prompt": PROMPT,
        "script": {"language": "python", "source": script},
        "max_tokens": 16,
        "stream": False,
    }
    command = [Path(sys.executable).with_name("aici"), "serve", "--port", "0"]
    command += ["--kv-cache-tokens", str(CACHE_TOKENS)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            else:
                raise SystemExit("the server ended before it was ready")
            request = urllib.request.Request(
                f"{found[1]}/v1/run", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                return str(json.load(answer)["forks"][0]["text"])
        finally:
            server.terminate()


def main() -> None:
    """Prints the versions and both texts; exits with status 1 if one does not match the pattern."""
    assert Path(sys.prefix) in Path(pyaici.__file__).parents, (
        f"{pyaici.__file__} is not the installed package"
    )
    names = (
        "pyaici",
        "wasmtime",
        "numpy",
        "msgpack",
        "xllamacpp",
        "tokenizers",
        "fastapi",
        "pydantic",
    )
    print("python", sys.version.split()[0], *(f"{name} {version(name)}" for name in names))
    for text in (in_process(), through_server()):
        print(repr(text))
        if ANSWER.fullmatch(text) is None:
            raise SystemExit(f"the text {text!r} does not match {PATTERN!r}")


if __name__ == "__main__":
    main()
