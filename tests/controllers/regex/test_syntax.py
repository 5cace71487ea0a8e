"""Every form of the syntax: texts that match, and texts that do not."""

from __future__ import annotations

import pytest

from tests.controllers.regex.engine import Engine

CASES: list[tuple[str, list[str], list[str]]] = [
    # characters and escapes
    ("", [""], ["a"]),
    ("abc", ["abc"], ["", "ab", "abcd", "ABC"]),
    ("é中😀", ["é中😀"], ["e中😀"]),
    (r"\n\t\r\f\v\a\0", ["\n\t\r\f\v\a\0"], []),
    (r"\x41\x{1F600}\u00e9\u{4e2d}\U0001F600\U{41}", ["A😀é中😀A"], []),
    (r"\ud83d\ude00", ["😀"], []),
    (r"\.\*\+\?\(\)\[\]\{\}\|\^\$\\\/\-\#\&\~\ \"\'", [".*+?()[]{}|^$\\/-#&~ \"'"], []),
    (r"\Qa.b*c\E+", ["a.b*c", "a.b*ccc"], ["aXb*c"]),
    (r"\Qa\b", ["a\\b"], []),
    ("]}", ["]}"], []),
    (".", ["a", "é", "😀", "\r", "\u2028"], ["", "\n", "ab"]),
    ("(?s).", ["\n", "a"], ["ab"]),
    # classes
    ("[abc]", ["a", "b", "c"], ["d", "", "ab"]),
    ("[a-cx-z]", ["b", "y"], ["d"]),
    ("[^a-c]", ["d", "\n", "é"], ["a", ""]),
    ("[]a]", ["]", "a"], ["b"]),
    ("[^]a]", ["b"], ["]", "a"]),
    ("[-a]", ["-", "a"], ["b"]),
    ("[a-]", ["-", "a"], ["b"]),
    ("[--a]", ["-", "a"], ["b"]),
    (r"[\]\-\\^]", ["]", "-", "\\", "^"], ["a"]),
    (r"[\d\s-]", ["5", " ", "-"], ["a"]),
    (r"[\x41-\x43\u00e9]", ["B", "é"], ["D"]),
    ("[α-ω]", ["λ"], ["Λ", "a"]),
    ("[[a-c][x-z]]", ["a", "z"], ["m"]),
    ("[^[a-c]x]", ["m"], ["b", "x"]),
    ("[a-z&&[^aeiou]]", ["b"], ["a", "B"]),
    ("[a-z&&aeiou]", ["a"], ["b"]),
    ("[a-z--aeiou]", ["b"], ["a"]),
    ("[a-m~~g-z]", ["a", "z"], ["h"]),
    ("[a-z--[aeiou]--xyz]", ["b"], ["a", "x"]),
    ("[^a-z&&b-y]", ["a", "z", "A"], ["b"]),
    ("[a-z&&b-y--c]", ["b"], ["a", "c"]),
    ("[[:alpha:]]", ["a", "Z"], ["1", "é"]),
    ("[[:^alpha:]]", ["1", "é"], ["a"]),
    ("[^[:space:][:digit:]]", ["a"], [" ", "1"]),
    ("[[:word:]]+", ["a_1"], ["é"]),
    ("[[:punct:]]+", ["!/:@[`{~"], ["a"]),
    ("[a-b&&b-c]x", ["bx"], ["ax"]),
    ("a|[a&&b]", ["a"], ["b"]),
    # Perl and Unicode classes
    (r"\d+", ["123", "٣"], ["a"]),
    (r"(?-u)\d+", ["123"], ["٣"]),
    (r"\w+", ["aé_1", "नि"], ["-"]),
    (r"(?-u)\w", ["a", "_"], ["é"]),
    (r"(?-u)\W", ["é", "-"], ["a"]),
    (r"\s+", [" \t\n\v\f\r\u00a0\u2003"], ["a"]),
    (r"(?-u)\s", ["\v"], ["\u00a0"]),
    (r"\D\S\W", ["a-."], ["1-."]),
    (r"\pL\PL", ["a1"], ["1a"]),
    (r"\p{Lu}\p{Ll}", ["Éé"], ["éÉ"]),
    (r"\p{Greek}\P{Greek}", ["λa"], ["aλ"]),
    (r"\p{^Greek}\P{^Greek}", ["aλ"], ["λa"]),
    (r"\p{sc=Han}\p{Script=Latin}", ["中a"], ["a中"]),
    (r"\p{gc=Lu}\p{General_Category:Decimal_Number}", ["A1"], ["a1"]),
    (r"\p{gc!=Lu}", ["a"], ["A"]),
    (r"\p{is_greek}\p{uppercase letter}", ["λA"], ["λa"]),
    (r"\p{Any}\p{ASCII}\p{Assigned}", ["\u0378a\u0377"], ["aéa"]),
    (r"\p{Emoji}", ["😀", "1"], ["a"]),
    (r"[\p{Lu}\d]", ["A", "1"], ["a"]),
    # groups and alternatives
    ("a|b|", ["a", "b", ""], ["c", "ab"]),
    ("(a)(?:b)(?<n>c)(?P<m.1[x]>d)", ["abcd"], ["abc"]),
    ("(a|b)c", ["ac", "bc"], ["c", "abc"]),
    ("(|a)b", ["b", "ab"], ["aab"]),
    ("()", [""], ["a"]),
    # repetition
    ("a*", ["", "a", "aaa"], ["b"]),
    ("a+?", ["a", "aa"], [""]),
    ("a??b", ["b", "ab"], ["aab"]),
    ("a{2}", ["aa"], ["a", "aaa"]),
    ("a{2,}", ["aa", "aaaa"], ["a"]),
    ("a{1,3}?", ["a", "aaa"], ["", "aaaa"]),
    ("a{0}b", ["b"], ["ab"]),
    ("(ab){2}", ["abab"], ["abb"]),
    ("(a*)*(b?)+", ["", "aab"], ["ba"]),
    (r"é{2}", ["éé"], ["é"]),
    # flags
    ("(?i)abc", ["abc", "AbC"], ["abd"]),
    ("a(?i)b(?-i)c", ["abc", "aBc"], ["Abc", "abC"]),
    ("(a(?i)b)c", ["aBc"], ["abC"]),
    ("(?i:a)b", ["ab", "Ab"], ["aB"]),
    ("(?i)k", ["k", "K", "\u212a"], []),
    ("(?i-u)k", ["k", "K"], ["\u212a"]),
    ("(?i)[a-c]", ["B"], ["D"]),
    ("(?i)[^a]", ["b"], ["a", "A"]),
    ("(?i)[a-c&&B]", ["b", "B"], ["a"]),
    ("(?i)σ", ["σ", "ς", "Σ"], []),
    ("(?i)ß", ["ß", "ẞ"], ["ss"]),
    (r"(?i)\p{Lu}", ["a", "A"], ["1"]),
    (r"(?i)\P{Lu}", ["1"], ["a", "A"]),
    ("(?x) a b # a comment\n c", ["abc"], ["a b c"]),
    ("(?x)[a b]\\ c", ["a c", "b c"], ["  c"]),
    ("(?x) a {2} | b *", ["aa", "bb", ""], ["a"]),
    ("(?sm-x:.)", ["\n"], []),
    ("(?U)a+", ["a", "aa"], [""]),
    # anchors and word boundaries
    ("^abc$", ["abc"], ["abc\n", "xabc"]),
    (r"\Aabc\z", ["abc"], ["abc\n"]),
    ("(^a|b$)+", ["a", "b", "ab"], ["ba", "aa"]),
    ("(?m)a$\n^b", ["a\nb"], ["ab"]),
    ("(?m)(^a$\n?)+", ["a", "a\na\n"], ["aa"]),
    ("(?s).*(?-m:$)\n?", ["a\n"], []),
    (r"\bfoo\b( \bbar\b)*", ["foo", "foo bar"], ["foobar"]),
    (r"\w+\b\W\B\W+", ["a--", "é---"], ["a-"]),
    (r".*\bé\b.*", ["a é b", "é"], ["aéb"]),
    (r"(?-u:\b)é(?-u:\b)", [], ["é"]),
    (r"a(?-u:\b)é", ["aé"], []),
    (r"a\b{end}-\b{start}b\b{end-half}-\b{start-half}-", ["a-b--"], []),
    (r"^*a$?", ["a"], ["aa"]),
    # any text until
    ("(?until:</a>)", ["</a>", "x</a>", "<</a>", "</</a>"], ["", "x", "</a>x", "</a></a>"]),
    ("<(?until:>)-(?until:a|bc)", ["<x>-a", "<>-xbc", "<>-bbc"], ["<>>-a", "<x>-ba a"]),
    ("(?until:)", [""], ["a"]),
    ("(?i)(?until:end)", ["The END"], ["end end"]),
    (r"(?until:\d{3})", ["a12b123", "123"], ["1234"]),
    (r"(?until:(?until:a)b)", ["ab", "aab", "xab", "xaxab"], ["ba", "abab"]),
    ("(?:(?until:;) ?){2}", ["a;b;", "; ;"], ["a;", "a;b;c;"]),
    # complement
    ("(?not:abc)", ["", "ab", "abcd", "xyz\n"], ["abc"]),
    (r"(?not:.*</a>.*)", ["x", "</a", "a\n"], ["</a>", "x</a>y"]),
    ("(?not:(?s:.*x.*))y", ["y", "aby"], ["xy"]),
    ("(?not:(?not:a+))", ["a", "aa"], ["", "b"]),
    (r"(?not:[^\d\D])", ["", "a"], []),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), CASES)
def test_case(engine: Engine, pattern: str, matching: list[str], others: list[str]) -> None:
    if not matching:
        pattern = f"{pattern}|\0"  # a pattern without any text is refused
    engine.compile(pattern)
    for text in matching:
        seen = engine.run(text)
        assert seen[-1] == 3, text
        assert 0 not in seen, f"a beginning of {text!r} is dead"
    for text in others:
        assert engine.run(text)[-1] != 3, text


def test_exactly_the_prefixes_of_matches_are_alive(engine: Engine) -> None:
    engine.compile("ab?|cd{2}|é")
    texts = [b"a", b"ab", b"cdd", "é".encode()]
    alive = {text[:end] for text in texts for end in range(len(text) + 1)}
    for prefix in alive:
        for byte in range(256):
            longer = prefix + bytes([byte])
            assert engine.alive(longer) == (longer in alive), longer


def test_long_patterns(engine: Engine) -> None:
    engine.compile("a" * 40_000)
    assert engine.accepts("a" * 40_000)
    assert not engine.accepts("a" * 39_999)
    words = [f"word{i}" for i in range(5000)]
    engine.compile("|".join(words))
    assert engine.accepts("word4999")
    assert not engine.alive("word5000")
    engine.compile("[" + "".join(chr(c) for c in range(0x4E00, 0x9000, 2)) + "]")
    assert engine.accepts("\u4e02")
    assert not engine.alive("\u4e03")


def test_characters_outside_all_classes_are_rejected(engine: Engine) -> None:
    """Characters that are in no class of the pattern share no row with those that are."""
    engine.compile("[αγ][βδ]")
    for first in "αβγδε":
        for second in "αβγδε":
            assert engine.accepts(first + second) == (first in "αγ" and second in "βδ")
            assert engine.alive(first) == (first in "αγ")
