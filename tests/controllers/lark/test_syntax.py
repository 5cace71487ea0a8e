"""The constructs of the dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str], Controller]


@pytest.mark.parametrize(
    ("grammar_text", "texts", "others"),
    [
        ('start: "a" "b"', ["ab"], ["a", "ba", "a b"]),
        ('start: "a" "b" | "c"', ["ab", "c"], ["ac"]),
        ('start: "a"\n  | "b"\n  "c"', ["a", "bc"], ["ac"]),
        ('start: ("a" | "b") "."', ["a.", "b."], ["."]),
        ('start: ["a"] "."', ["a.", "."], ["aa."]),
        ('start: "a"? "."', ["a.", "."], []),
        ('start: "a"* "."', ["aa.", "."], []),
        ('start: "a"+', ["a", "aa"], [""]),
        ('start: "a"~2', ["aa"], ["a", "aaa"]),
        ('start: "a" ~ 2..3', ["aa", "aaa"], ["a", "aaaa"]),
        ('start: "a"{2}', ["aa"], ["a", "aaa"]),
        ('start: "a"{2,}', ["aa", "aaaa"], ["a"]),
        ('start: "a"{,2} "."', [".", "aa."], ["aaa."]),
        ('start: ("a" "b"){1,2}', ["ab", "abab"], ["aab"]),
        ('start: | "a"', ["", "a"], ["b"]),
        ('start: "" "a"', ["a"], [""]),
        ('start: "ab"i', ["ab", "aB", "AB"], ["a"]),
        ("start: /ab/i", ["ab", "aB"], ["a"]),
        ("start: /a.b/s", ["a\nb"], []),
        ("start: /a b # c/x", ["ab"], ["a b"]),
        (r"start: /a\/b/", ["a/b"], []),
        (r'start: "\"\\\n\x41\u00e9\ud83d\ude00\/"', ['"\\\nAé😀/'], []),
        ('start: "a".."c"', ["a", "b"], ["d"]),
        ('start: A A\nA: "a".."c" "x"', ["axbx"], ["ax"]),
        ('start: A\nA: B+ "!" | /c/\nB: /[ab]/', ["ab!", "c"], ["!", "a"]),
        ('start: A\nA: ("x" | "y"){2} ["z"]', ["xy", "yyz"], ["x"]),
        ("start: A\nA: /[ab]+/ & ~/aa/", ["a", "ab", "aaa"], ["aa", ""]),
        ('start: A\nA: (/(aa)*/ & /(aaa)*/) "!"', ["aaaaaa!", "!"], ["aa!", "aaa!"]),
        ("start: A\nA: ~(/.*aa.*/s | /b*/)", ["aba!"], ["caab!", "bb", ""]),
        ('start: x\nx: y -> one\n | y y -> two\ny: "a"', ["a", "aa"], []),
        ('?start: _x\n!_x: Y\nY.2: "a" // here\nz.-1: "b" # there', ["a"], ["b"]),
        ('start: a-b\na-b: "x"->y', ["x"], []),
        ('start: _A\n_A: "a"', ["a"], []),
        ('start: INT "," NUM\n%import common.INT\n%import common.SIGNED_NUMBER -> NUM', ["1,-2.5e3"], ["1,"]),
        ("%import common (CNAME, WS)\n%ignore WS\nstart: CNAME CNAME", ["a b", "a\n\tb_1"], ["a"]),
        ('start: "a" "b"\n%ignore " "\n%ignore /#.*/ | "\\n"', ["a  b", "a #x\n b", "ab"], ["b"]),
        ('start: word "."\nword[lazy]: /[a-z]+!/', ["ab!."], ["a!b!."]),
        ('start: t "x"\nt[suffix="</b>"]: /(?s:.*)/', ["a<b</b>x", "</b>x"], ["</b></b>x"]),
        ('start: t\nt[capture]: /a/ | u\nu[capture="n"]: "b"', ["a", "b"], []),
        ('start: t "!"\nt[lazy]: /a*/', ["!", "a!"], ["aa!"]),
        ('start: S "!"\nS: %regex {"substring_chars": "héllo"}', ["él!", "!"], ["hl!"]),
        ('start: %regex {"substring_words": "one two, x"} "!"', ["one two!", " two,!", "!"], ["on!"]),
        ('start: %regex {"substring_chunks": ["ab", "c", "ab"]} "!"', ["abc!", "cab!"], ["b!", "cc!"]),
        ('start: "a" n "b"\nn: %lark { start: "x" y\ny: Y+\nY: "z" }\ny: "q"', ["axzb"], ["axqb"]),
        (
            'start: x "." %lark {\n// not the end: }\nstart: x "}" /[}"]/ {1,2} %lark { start: x\n'
            'x: "2" }\nx: "1" }'
            '\nx: "0"',
            ['0.1}"2', "0.1}}}2"],
            ["0.0}}2", "0.1}}0"],
        ),
        ('start: "a" %lark { start: "b" "c"\n%ignore / +/ }\n%ignore / +/', ["a b c", "abc"], ["a"]),
        ('start: %lark { start: %json {"type": "integer"} "!" } "?"', ["12!?"], ["1.5!?"]),
    ],
)
def test_constructs(grammar: Make, grammar_text: str, texts: list[str], others: list[str]) -> None:
    made = grammar(grammar_text)
    assert [t for t in texts if not made.accepts(t)] == []
    assert [t for t in others if made.accepts(t)] == []


def test_captures_change_no_text_and_cause_a_warning(grammar: Make) -> None:
    made = grammar('start: t\nt[capture]: "a"')
    assert made.accepts("a")
    assert made.log() == "warning: lark does not tell captures to the client: use the controller extract\n"
    assert grammar('start: "a"').log() == ""


@pytest.mark.parametrize(
    "place", ["start: {} '!'", "start: A '!'\nA: {}", "start: a '!'\na: {}\n%ignore ' '"]
)
def test_long_texts_to_quote_from(grammar: Make, place: str) -> None:
    """Alone in a rule or a terminal: exactly the parts of the text."""
    words = [f"w{i % 700}" + "s" * (i // 700) for i in range(1400)]
    forms = {
        "words": (
            " ".join(words),
            ["w5 w6 w7!", " w6!", "!", "w699 w0s w1s!"],
            ["w5 w7!", "w5 w!", "5!", "w6  w7!"],
        ),
        "chunks": (words, ["w5w6w7!", "!", "w699w0sw1s!", "w1s!"], ["w5w7!", "w5w!", "w1 s!"]),
        "chars": ("".join(words), ["5w6w!", "!", "99w0sw1s!"], ["w5w7!", "ss!", "w1 s!"]),
    }
    for form, (value, texts, others) in forms.items():
        regex = "%regex " + json.dumps({f"substring_{form}": value})
        made = grammar(place.replace("'", '"').replace("{}", regex))
        assert [t for t in texts if not made.accepts(t)] == [], form
        assert [t for t in others if made.accepts(t)] == [], form
