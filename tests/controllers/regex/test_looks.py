"""Look-arounds, compared with the standard library on all short texts."""

from __future__ import annotations

import itertools
import random
import re
import time

import pytest

from aicirt.system.pace import pace
from tests.controllers.regex.engine import Engine, Refused
from tests.controllers.regex.looks import Looks

#: characters of the texts that are tried; the last one is not a word character
ALPHABET = "ab."
CHARACTERS = ["a", "b", r"\.", "[ab]", "[^a]", r"\w", "(?s:.)"]
ANCHORS = ["^", r"(?!(?s:.))", r"\b", r"\B"]
TEXTS = ["".join(text) for size in range(7) for text in itertools.product(ALPHABET, repeat=size)]
#: seconds of CPU time of one call on the reference machine
SOON = 5.0
PAIRS = list(itertools.product("abcdefgh", "ijklmnop"))


def matches(pattern: str) -> list[str]:
    compiled = re.compile(pattern)
    # `\B` matches in an empty text, but not for Python before 3.14
    return [text for text in TEXTS if compiled.fullmatch(text) and (text or r"\B" not in pattern)]


def check(engine: Engine, pattern: str) -> None:
    wanted = matches(pattern)
    try:
        engine.compile(pattern)
    except Refused as refused:
        assert "no text matches" in refused.message, pattern
        assert wanted == [], pattern
        return
    found = [text for text in TEXTS if (text or r"\B" not in pattern) and engine.accepts(text)]
    assert found == wanted, pattern
    assert engine.inexact_states(2000) in (0, None), pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=ab)a.*",
        "(?!ab)[ab]*",
        ".*(?<=b)",
        ".*(?<!b)",
        "a(?=b)b|b(?!b).*",
        "(?:(?!ab)[ab.])*",
        "(?:(?=.*b)a|b)+",
        "(?:[ab.](?<!aa))*",
        "(?:(?=a))*a",
        "(?:(?=a)|(?=b))*.",
        "(?=(?!a).)(?=.a).*",
        "(?!(?!a)).*",
        "(?<=^)a.*(?=$)",
        r"(?=\b).*(?<=\b)",
        "(?<=(?<!a)b).*|.*(?<=(?<!a)b)",
        ".*(?<=a(?=b)).*",
        ".*(?<!a(?=b)).*",
        ".*(?<!a(?!b)).",
        "(?=.*(?<=ab)$).*",
        "(?!.*(?<!b)$).*",
        "(?=a{1,3}$)[ab]*",
        r"(?=[ab]{2,4}\.)(?!.*bb).*",
        "(?:(?=[ab]+$)|(?<=a)).*",
        "(?i:(?=B)).*",
    ],
)
def test_look_arounds(engine: Engine, pattern: str) -> None:
    check(engine, pattern)


@pytest.mark.parametrize("seed", [*range(5), *range(6, 11)])  # the standard library takes 10 s for 5
def test_random_look_arounds(engine: Engine, seed: int) -> None:
    """All four kinds, nested, as alternatives and repeated, with anchors and word boundaries."""
    looks = Looks(random.Random(seed), CHARACTERS, ANCHORS)
    for _ in range(15):
        check(engine, looks.alternatives(3))


def test_look_behinds_of_any_length(engine: Engine) -> None:
    """The standard library refuses these."""
    engine.compile(r".*(?<=a[ab]*)\.(?<!bb+\.).*")
    for text in TEXTS:
        before = text.split(".")[:-1]
        wanted = any(
            "a" in "".join(before[i]) and not re.search("bb$", before[i]) for i in range(len(before))
        )
        assert engine.accepts(text) == wanted, text


def test_characters_beyond_ascii(engine: Engine) -> None:
    engine.compile(r"(?!.*é😀)(?:(?<!\p{Greek})[a-z]|[^a-z])+")
    assert engine.accepts("é😀"[::-1]) and engine.accepts("éa😀λ")
    assert not engine.alive("aé😀") and not engine.alive("λa")


def test_many_conditions(engine: Engine) -> None:
    """The usual pattern of a password, and one that excludes words."""
    engine.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?=.*[!-/])(?!.*\.\.)[!-~]{8,64}")
    assert engine.accepts("aB3!aaaa") and not engine.accepts("aB3aaaaa") and not engine.accepts("aB3!aaa")
    words = [f"{first}{second}at" for first in "bcfhmprs" for second in "aeiou"]
    engine.compile(rf"(?:(?!\b(?:{'|'.join(words)})\b)\w+(?: |$))+")
    assert engine.accepts("beats the road") and not engine.accepts("the beat")


@pytest.mark.parametrize(
    "pattern",
    [
        "".join(f"(?=.*{a}.{{{ord(a) ^ ord(b)}}}{b})" for a, b in PAIRS) + ".*",
        "(?:(?=.{200}a)(?=.{300}b).)*",
        "(?:(?!.{20}a)[ab])*",
        "(?=(?:a|b)*a(?:a|b){500})(?!.*(?:a|b){400}b.{300}a).{0,3000}",
        ".*(?<!a.{30}).*",
        "(?:" + "".join(f"(?={c}|(?!{c}))" for c in "abcdefghijklmnopqrst") + ".)*",
        "(?:(?=" * 30 + ".{50}a" + ")|b)*" * 30 + ".*",
        "(?:" + "|".join(f"(?=.*{chr(0x4E00 + i)})" for i in range(300)) + ")*.*",
        "(?<=" * 40 + "(?=.*a)b" + ")" * 40,
        "|".join(f"(?<=a.{{{i}}})b" for i in range(70)),
        "(?!" + "|".join(f"(?={a}.)(?=.{b})x" for a, b in PAIRS) + ").*",
        "(?:(?!" + "|".join(f"(?!.*{a}.)(?!.*.{b})" for a, b in PAIRS) + ").)*",
        "(?:(?<!" + "|".join(f"(?!.*{a}.)(?!.*.{b})x" for a, b in PAIRS) + ").)*",
    ],
)
def test_look_arounds_have_a_limit(engine: Engine, pattern: str) -> None:
    """Each of these is refused by name, or works, and soon."""
    start = time.thread_time()
    try:
        engine.compile(pattern)
    except Refused as refused:
        reasons = "with its look-arounds is too large|64 look-behinds|no text"
        assert re.search(reasons, refused.message), refused
    else:
        engine.alive("ab" * 50)
    assert time.thread_time() - start < SOON * pace()


def test_too_many_look_behinds(engine: Engine) -> None:
    with pytest.raises(Refused, match="the pattern has more than 64 look-behinds"):
        engine.compile("".join(f"(?<!{chr(0x4E00 + i)})" for i in range(65)) + "a")
    engine.compile("(?:(?<=a)b|a){300}")
    assert engine.accepts("ab" * 150) and not engine.alive("abb")
