"""Tokens with parts of characters, or with malformed bytes, are allowed where their single bytes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, SAMPLE
from aicirt.wasm import Program
from lab.runners.host import EVERYTHING, Guest, Vocab

#: words, and what ends texts
WORDS = (
    *("é", "éa", " é", "日本", "日", "，", '，"', '日"', "é\n", "n", "name", 'name"', "nä", "nämlich"),
    *("a😀b", "😀", "\u2028", "a\u2028", "é\u2029b", "\u2027", "日\u2028日"),
    *("\u00a0", "é\u00a0", "é\u00a0b", "\u00a05", "日\u00a0日", "日\u30005日", "\u3000\u00a0"),
)
#: beginnings and ends of characters, and malformed UTF-8: a surrogate, invalid bytes, bytes too many
PARTS = (
    *(b"\xc3", b"a\xc3", b"\xa9", b"\xa9b", b"\xa9\xc3", b"\xe6\x97", b"\x97\xa5", b"\xa5", b"\xa5\xe6\x97"),
    *(b"\xf0\x9f", b"\x98\x80", b"\x9f\x98\x80x", b"\xed\xa0\x80", b"\xff", b"a\xff", b"\xc3(", b"\xc0\x80"),
    *(b"\xe2", b"a\xe2\x80", b"\x80\xa8", b"\xa8x", b"\xe2\x80\xa7\xe2\x80"),
    *(b"\xc3\xc3\xa9", b"\xf5", b"\xe6\x97\xa5\xa5", b"\xef\xbc\x8c\xe6", b'\xa9"', b'"\xc3', b'": "\xa9'),
)
TOKENS = list(
    dict.fromkeys([*(bytes([byte]) for byte in range(256)), *(it.encode() for it in WORDS), *PARTS])
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "nämlich": {"type": "string", "pattern": "^[^a日]*$"},
    },
}
#: JavaScript's `.` is any character but four; strings and names have one pattern
LINES = {
    "type": "object",
    "properties": {
        "line": {"type": "string", "pattern": "^.+$"},
        "few": {"type": "string", "pattern": "^.*é$", "maxLength": 3},
        "more": {"type": "object", "properties": {"日": {"type": "string"}}},
    },
}
#: blanks beyond ASCII are a few characters after which a text goes on in another way
BLANKS = {"type": "string", "pattern": r"^(\S+\s5)*\S*$"}
CASES = {
    "any text": ("regex", "(?s).*", "aé日😀"),
    "short text": ("regex", "(?s).{2,4}", "é日"),
    "some characters": ("regex", "[^日é]+", "a😀"),
    "names": ("json_schema", json.dumps(SCHEMA), '{"name": "日é", "nämlich": "é", "na日": "é😀"}'),
    "lines": ("json_schema", json.dumps(LINES), '{"line": "é日", "few": "日é", "more": {"日": "", "é": ""}}'),
    "blanks": ("json_schema", json.dumps(BLANKS), '"é\u00a05日\u30005"'),
    "comments": ("lr1", '%%\ntext: COMMENT | text COMMENT ;\nCOMMENT: "/#[^\\n日]*\\n/" ;\n', "#é\n#"),
    "rules": ("kbnf", 'start ::= #"[^日]*" "é" #"[a-zé]+\\n";', "aéa"),
}


@pytest.mark.parametrize("case", CASES)
def test_masks_are_those_of_single_bytes(case: str, program: Callable[[str], Program]) -> None:
    controller, argument, text = CASES[case]
    vocab = Vocab([*TOKENS, b"<eos>"], eos=[len(TOKENS)])
    capabilities = {**EVERYTHING, CAP_TOKENIZER: 0, CAP_FF_TOKENS: 0}
    guest = Guest(program(controller), vocab, argument, capabilities=capabilities)

    @cache
    def allowed(prefix: bytes) -> frozenset[int]:
        row = guest.fork(2).step(list(prefix)).row
        return frozenset(row.allowed) if row.verb == SAMPLE else frozenset()

    for length in range(len(text.encode()) + 1):
        prefix = text.encode()[:length]
        for number, token in enumerate(TOKENS):
            expected = all(byte in allowed(prefix + token[:i]) for i, byte in enumerate(token))
            assert (number in allowed(prefix)) == expected, (prefix, token)
