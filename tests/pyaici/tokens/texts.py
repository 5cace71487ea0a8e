"""Texts and bytes that tokenizers often handle wrongly."""

from __future__ import annotations

import random

#: valid text without names of special tokens and without U+2581
PLAIN = [
    "Hello, world! It's 12345.67 — “quoted” text, isn't it?",
    "def f(x):\n    if x:\n\treturn {'a': [1, 2.5e-3]}  # ok\r\n\r\n\n\n",
    "  two leading, two trailing  ",
    " ",
    "\n",
    "\t\t \n \n\n  \t" + "".join(" " * n + "x" for n in range(1, 40)),
    "\u00a0\u2003\u3000\u200b\u200d\ufeff\u2028\u0085",
    "emoji 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ♥♦✅™",
    "e\u0301 n\u0303 \u0915\u094d\u0937\u093f A\u030a\u0327\u0323 \u1100\u1161\u11a8 \uac01",
    "ﬁ Ⅷ ｆｕｌｌ ① ² Å Ω ſ",
    "漢字かな交じり文、한국어 텍스트 ภาษาไทย ქართული",
    "العربية مع أرقام ١٢٣ ועברית\u200f mixed \u202bRTL\u202c",
    "".join(map(chr, range(0x80))),
    "".join(map(chr, range(0x80, 0x400))),
    "\U00012000\U0001d11e\U000e0001\uffff\ufffd\ue000\U0010ffff",
    "a" * 300 + "b" + "ab" * 100 + "=" * 90,
    "1" * 50 + " 3.14159265358979 0x1F -42 1,000,000",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org",
    '{"key": "va\\"lue", "n": null}\n<div class="x">&amp;</div>',
    "ZQXJ zqxj camelCaseHTTPServer snake_case_name SCREAMING_CASE",
]

#: plain text that looks like special tokens, byte pieces or a SentencePiece space
LOOKALIKES = [
    "<s></s><unk><pad>[INST] [/INST]<|endoftext|><|im_end|><|eot_id|><bos><eos>",
    "<0x41><0x0A> <0xFF>",
    "\u2581 \u2581\u2581the \u2581x",
    "<｜User｜><tool_call>{}</tool_call><EOT>[UNK][CLS] ##ing",
]

_RANDOM = random.Random(20260401)

#: bytes, most of them not UTF-8
RAW = [
    bytes(range(256)),
    bytes(range(255, -1, -1)),
    b"\xff\xfe\xfd",
    b"ok \xc3\xa9\xc3 \xe2\x82 \xf0\x9f\x91 \xf0\x9f",
    b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf",  # overlong
    b"\xed\xa0\x80\xed\xbf\xbf\xed\xa0\xbd\xed\xb1\x8d",  # surrogates
    b"\xf4\x90\x80\x80\xf7\xbf\xbf\xbf",  # beyond U+10FFFF
    "漢字 👍".encode()[1:-1],
    b"\x80" * 40 + b"text" + b"\xbf" * 3,
    b"\0" * 20 + b" \0",
    *(_RANDOM.randbytes(size) for size in (1, 2, 3, 50, 300)),
]
