"""Chat templates come with models, so their time, numbers and repetitions are bounded."""

from __future__ import annotations

import jinja2
import pytest

from pyaici.engines import chat_template
from pyaici.engines.chat_template import render_chat
from pyaici.server.apis.thinking import template_variables

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}"
MACRO = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


def test_small_products_powers_and_repetitions_are_computed() -> None:
    template = (
        "{% for m in messages %}{{ m.content * 2 }} {{ 2 ** 10 }} {{ 3 * 4 }} {{ [1] * 2 }}{% endfor %}"
    )
    assert render_chat(template, [{"content": "hi"}], {}) == "hihi 1024 12 [1, 1]"


@pytest.mark.parametrize(
    "template",
    [
        "{{ 9 ** (9 ** 9) }}",
        "{{ 2.0 ** 100000 }}",
        "{{ 'a' * 999999999 }}",
        "{{ 99999999 * [0] }}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    ],
)
def test_large_ones_are_refused_while_a_template_is_compiled_or_rendered(template: str) -> None:
    with pytest.raises(jinja2.TemplateError, match="may not compute anything as large"):
        render_chat(template, [], {})


@pytest.mark.parametrize("template", [LOOP, MACRO])
def test_endless_templates_end(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.05)
    with pytest.raises(jinja2.TemplateError, match="takes longer than"):
        render_chat(template, [], {})


def test_variables_of_a_template_are_found_without_computing_its_constants() -> None:
    template = "{{ 9 ** (9 ** 9) }}{% if enable_thinking %}{% set a = 1 %}{{ a }}{% endif %}{{ messages[0] }}"
    assert template_variables(template) == {"enable_thinking", "messages"}
    assert template_variables("{% if %}") == frozenset()


def test_json_on_several_lines_does_not_become_huge() -> None:
    template = "{{ tools|tojson(indent=2) }}"
    assert render_chat(template, [], {"tools": {"a": [1]}}) == '{\n  "a": [\n    1\n  ]\n}'
    nested: list[object] = [1] * 1000
    for _ in range(200):
        nested = [nested]
    assert len(render_chat(template, [], {"tools": nested})) < 100_000  # 400 KB with lines of 400 blanks
    with pytest.raises(jinja2.TemplateError, match="may not indent"):
        render_chat("{{ tools|tojson(indent=1000000000) }}", [], {"tools": [1]})
