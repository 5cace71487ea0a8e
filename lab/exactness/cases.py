"""Random cases of each engine: a source, its oracle, and the engines to compare with."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from llguidance import LLMatcher

from lab.exactness.languages import (
    Agreeing,
    Derived,
    Earley,
    Language,
    Lexed,
    Listed,
    Matched,
    matched,
)
from lab.exactness.peers import Kbnf, Llguidance, Outlines, Xgrammar
from lab.exactness.walk import Case
from lab.oracles import earley
from lab.oracles.grammars.expressions import (
    NONE,
    Call,
    Choice,
    Expr,
    Grammar,
    Sequence,
    cat,
    characters,
    literal,
    pattern,
    random_grammar,
    random_regex,
    random_terminals,
    star,
)
from lab.oracles.grammars.gbnf import gbnf
from lab.oracles.grammars.kbnf import kbnf, kbnf_terminals
from lab.oracles.grammars.lark import lark
from lab.oracles.grammars.vocabularies import LETTERS, few_tokens
from lab.oracles.lr1_rules import (
    as_yacc,
    lexed_as_yacc,
    lexemes,
    random_lexed_rules,
    random_rules,
)
from lab.oracles.patterns import ALPHABET, MARK, random_pattern
from lab.oracles.substring import outputs, vocabulary
from lab.runners.host import Vocab


@dataclass(frozen=True)
class Source:
    """A source of cases, each a pure function of a random generator."""

    draw: Callable[[random.Random], Case]
    close: Callable[[], None] = lambda: None


#: forced text is to be compared in all its tokens, not only in those that a tokenizer would choose
NO_FORCING = '%llguidance {"no_forcing": true}\n'


def _guidance_regex(source: str) -> str:
    """Returns the grammar of llguidance for a regular expression."""
    made = json.loads(LLMatcher.grammar_from_regex(source))
    made["grammars"][0]["lark_grammar"] = NO_FORCING + made["grammars"][0]["lark_grammar"]
    return json.dumps(made)


def _no_text_begins(language: Language, letters: str) -> bool:
    return not any(language.alive(letter.encode()) for letter in letters)


def kbnf_cases() -> Source:
    """Grammars in KBNF; a text ends with the first token after which it is complete."""
    vocab = few_tokens()
    peer = Kbnf(vocab)

    def case(rng: random.Random) -> Case:
        recursive = rng.random() < 0.7
        grammar = random_grammar(rng, "start", kbnf_terminals(rng, LETTERS), recursive=recursive)
        source, language = kbnf(grammar), Earley(grammar, "start", LETTERS)
        return Case(
            source,
            vocab,
            language,
            [(peer, source)],
            grammar,
            stops=True,
            may_refuse=lambda message: (
                "only the empty text" in message and _no_text_begins(language, LETTERS)
            ),
        )

    return Source(case, peer.close)


def gbnf_cases() -> Source:
    """Grammars in GBNF."""
    vocab = few_tokens()
    peer = Xgrammar(vocab)

    def case(rng: random.Random) -> Case:
        grammar = random_grammar(rng, "root", random_terminals(rng, LETTERS), recursive=rng.random() < 0.6)
        source = gbnf(grammar)
        return Case(source, vocab, Earley(grammar, "root", LETTERS), [(peer, source)], grammar)

    return Source(case)


def lark_cases() -> Source:
    """Grammars in the dialect of Lark, some of which ignore blanks."""
    vocabularies = [few_tokens(blanks=blanks) for blanks in (False, True)]
    peers = [Llguidance(vocab) for vocab in vocabularies]

    def case(rng: random.Random) -> Case:
        grammar = random_grammar(rng, "start", random_terminals(rng, LETTERS), recursive=rng.random() < 0.8)
        blanks = rng.random() < 0.3
        space = characters(" ")
        source = lark(grammar) + ("\n%ignore / +/" if blanks else "")
        letters, ignored = (LETTERS + " ", cat(space, star(space))) if blanks else (LETTERS, NONE)
        theirs = LLMatcher.grammar_from_lark(NO_FORCING + source)
        language = Lexed(grammar, "start", letters, ignored)
        return Case(source, vocabularies[blanks], language, [(peers[blanks], theirs)], grammar)

    return Source(case)


def lr1_cases() -> Source:
    """Grammars in the syntax of yacc without conflicts."""
    texts = ["a", "b", "c", "d", "ab", "ba", "cd", "abc", "dd", "bcd", "acab"]
    vocab = Vocab([*map(str.encode, texts), b"<eos>"], eos=[len(texts)])
    lexed_vocab = few_tokens(blanks=True)

    def refuses(message: str) -> bool:
        return re.search("conflicts?, not the 0|derives itself", message) is not None

    def plain(rng: random.Random) -> Case:
        rules = random_rules(rng)

        def expr(symbol: str) -> Expr:
            return Call(symbol) if symbol in rules else literal(symbol)

        grammar: Grammar = {
            name: Choice(tuple(Sequence(tuple(map(expr, body))) if body else literal("") for body in bodies))
            for name, bodies in rules.items()
        }
        second = Matched(lambda text: earley.accepts(rules, "S", text), "abcd")
        language = Agreeing(Earley(grammar, "S", "abcd"), second)
        return Case(as_yacc(rules), vocab, language, (), grammar, may_refuse=refuses, redraw=True)

    def lexed(rng: random.Random) -> Case:
        rules, blanks = random_lexed_rules(rng)
        used = {s for bodies in rules.values() for body in bodies for s in body}

        def accepts(text: str) -> bool:
            names = lexemes(text, blanks, used)
            return names is not None and earley.accepts(rules, "S", names)

        letters, longest = ("abc ", 4) if blanks else ("abc", 5)
        short = ("".join(t) for n in range(longest + 1) for t in itertools.product(letters, repeat=n))
        language = Listed(
            (text.encode() for text in short if accepts(text)), lambda text: accepts(text.decode())
        )
        return Case(lexed_as_yacc(rules, blanks), lexed_vocab, language, may_refuse=refuses, redraw=True)

    return Source(lambda rng: (lexed if rng.random() < 0.1 else plain)(rng))


def regex_cases() -> Source:
    """Regular expressions: of few letters; of Unicode; with anchors."""
    few, known = few_tokens(), ALPHABET + MARK
    pieces = [*known, "ab", "bK", "é😀", "1_", "- ", "aß", " \n", "bb", "ss", "k"]
    parts = [
        b"\xc3",
        b"\xa9",
        b"\x9f",
        b"a\xc3",
        b"\xf0\x9f",
        b"\x98\x80",
        b"\xe2\x84",
        b"\xaa",
        b"\xcc",
        b"\x81b",
    ]
    tokens = [*(piece.encode() for piece in pieces), *parts]
    vocab = Vocab([*tokens, b"<eos>"], eos=[len(tokens)])
    peers = {id(v): Llguidance(v) for v in (few, vocab)}
    outlines = Outlines(few)

    def letters(rng: random.Random) -> Case:
        tree = random_regex(rng, LETTERS, depth=4)
        source = pattern(tree)
        language = Agreeing(Derived(tree), matched(source, LETTERS, exact=False))
        theirs = _guidance_regex(source)
        return Case(source, few, language, [(peers[id(few)], theirs), (outlines, source)])

    def unicode(rng: random.Random) -> Case:
        made = random_pattern(rng, with_properties=True)
        language = matched(made.theirs, known, exact=True)
        theirs = _guidance_regex(made.ours)
        peer = peers[id(vocab)]
        empty = not made.ours
        return Case(
            made.ours,
            vocab,
            language,
            [(peer, theirs)],
            may_refuse=lambda _: empty,
            may_lack_tokens=True,
        )

    def anchors(rng: random.Random) -> Case:
        made = random_pattern(rng, with_anchors=True)
        language = matched(made.theirs, ALPHABET, exact=False)

        def refuses(message: str) -> bool:
            return not made.ours or ("no text matches" in message and language.alive(b"") is None)

        return Case(made.ours, vocab, language, may_refuse=refuses, may_lack_tokens=True)

    return Source(lambda rng: rng.choices((letters, unicode, anchors), (4, 4, 2))[0](rng))


def substring_cases() -> Source:
    """Texts whose parts are the output, some of which a marker ends."""
    vocab = vocabulary()
    peer = Llguidance(vocab)

    def case(rng: random.Random) -> Case:
        letters, longest = rng.choice([("ab", 40), ("abcé中乭😀\n", 24), ("a \né中乭the", 30)])
        text = "".join(rng.choices(letters, k=rng.randint(1, longest)))
        end = "".join(rng.choices("ab", k=rng.randint(1, 5))) if rng.random() < 0.3 else ""
        if end and rng.random() < 0.4:
            end = rng.choice(["\n", "é", "中a", "😀"])
        argument = {"text": text, "end": end} if end else {"text": text}
        theirs = LLMatcher.grammar_from_lark(
            f"{NO_FORCING}start: %regex {json.dumps({'substring_chars': text})}"
        )
        peers = [] if end else [(peer, theirs)]
        return Case(json.dumps(argument), vocab, Listed(outputs(text, end)), peers)

    return Source(case)


SOURCES = {
    "kbnf": kbnf_cases,
    "gbnf": gbnf_cases,
    "lark": lark_cases,
    "lr1": lr1_cases,
    "regex": regex_cases,
    "substring": substring_cases,
}
