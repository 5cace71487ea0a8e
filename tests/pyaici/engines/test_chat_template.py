"""Chat templates come with models: whatever one of them does takes bounded time and memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.engines import prompts
from pyaici.engines.prompts import render_chat
from pyaici.server.answers.thinking import template_variables

LONG = "{% set text = 'ab' * 5000000 %}"
#: endless loops, among them such that no code of Jinja interrupts
SLOW = {
    "loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "sum": "{{ ([[1] * 1000] * 30000) | sum(start=[]) | length }}",
    "select": "{{ range(99999) | select('in', range(99999) | list) | list | length }}",
}
LARGE = {
    "repeat": "{{ 'a' * 999999999 }}",
    "list": "{{ 99999999 * [0] }}",
    "center": "{{ 'a'.center(1000000000) }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "replace": LONG + "{{ text.replace('a', 'a' * 1000) }}",
    "join": LONG + "{{ ([text] * 100) | join | length }}",
    "concatenate": LONG + "{% set n = namespace(t=text) %}"
    "{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Smaller limits, for a process of its own."""
    prompts._renderer.end_process()
    monkeypatch.setattr(prompts, "SECONDS", 0.2)
    monkeypatch.setattr(prompts, "MEMORY_BYTES", 64 << 20)
    yield
    prompts._renderer.end_process()


@pytest.mark.parametrize("template", [*SLOW.values(), *LARGE.values()], ids=[*SLOW, *LARGE])
def test_templates_have_limits_whatever_they_call(limits: None, template: str) -> None:
    with pytest.raises(ValueError, match=r"takes more than 0\.2 s of processor time or 64 MiB of memory"):
        render_chat(template, [], {})
    assert render_chat("{{ messages[0].content }}", [{"content": "the next chat"}], {}) == "the next chat"


def test_long_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="its text has more than 16777216 characters"):
        render_chat("{% for i in range(40) %}{{ 'a' * 1000000 }}{% endfor %}", [], {})


def test_long_errors_are_cut() -> None:
    with pytest.raises(ValueError, match=r"^x{2000}$"):
        render_chat("{{ raise_exception('x' * 3000) }}", [], {})


def test_a_process_that_has_been_broken_out_of_writes_no_endless_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nsys.stdin.readline()\nwhile True:\n    sys.stdout.write('x' * 4096)\n")
    monkeypatch.setattr(prompts, "_PROGRAM", broken)
    monkeypatch.setattr(prompts, "MAX_TEXT", 1 << 10)
    renderer = prompts._Renderer()
    with pytest.raises(ValueError, match="takes more than"):
        renderer.render("", {})
    assert renderer._process is None


def test_any_text_of_a_chat_comes_back() -> None:
    texts = ["\ud800 \udfff", "\0\n\r\u2028", "é日本𐀀", '"\\{{ x }}', ""]
    found = render_chat("{{ messages | tojson }}", [{"content": text} for text in texts], {})
    assert [message["content"] for message in json.loads(found)] == texts


def test_one_process_renders_all_chats_and_a_fork_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = prompts._Renderer()
    processes = []
    for number in range(4):
        if number == 2:  # as after a fork
            monkeypatch.setattr(os, "getpid", lambda: 1)
        assert renderer.render("{{ x }}", {"x": number}) == str(number)
        processes.append(renderer._process)
    renderer.end_process()
    first, again, forked, last = processes
    assert first is again and forked is last and first is not None and forked is not None
    assert first.poll() is None, "the process of the parent is the parent's"
    first.communicate()  # ends with its input
    assert first.returncode == 0 and forked.poll() is not None


def test_variables_of_a_template_are_found_without_computing_its_constants() -> None:
    template = "{{ 9 ** (9 ** 9) }}{% if enable_thinking %}{% set a = 1 %}{{ a }}{% endif %}{{ messages[0] }}"
    assert template_variables(template) == {"enable_thinking", "messages"}
    assert template_variables("{% if %}") == frozenset()
