"""Random patterns for differential tests, each in our syntax and in that of the package to compare with."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

#: characters of the texts that are tried: letters with unusual case partners, blanks, all UTF-8 lengths
ALPHABET = "abK\u212aß1_ \n-é😀"
#: belongs to \w for Unicode and for us, but not for the standard library
MARK = "\u0301"


@dataclass(frozen=True)
class Pattern:
    ours: str
    theirs: str

    def within(self, before: str, after: str) -> Pattern:
        return Pattern(before + self.ours + after, before + self.theirs + after)


def same(text: str) -> Pattern:
    return Pattern(text, text)


ESCAPED = {" ": r"\ ", "\n": r"\n", "-": r"\-"}
literals = st.sampled_from(ALPHABET).map(lambda c: same(ESCAPED.get(c, c)))
perl = st.sampled_from([r"\w", r"\W", r"\d", r"\s", r"\S", "."]).map(same)
properties = st.sampled_from([r"\pL", r"\p{Lu}", r"\P{M}", r"\p{Greek}", r"\p{L}"]).map(same)
CLASS_ITEMS = ["a", "b", "k", "K", "s", "é", "😀", r"\n", " ", r"\w", r"\d", r"\S", "a-c", "A-Z", "à-ÿ", "-"]
CLASS_PROPERTIES = [r"\p{Greek}", r"\pL", r"\P{Lu}"]


@st.composite
def classes(draw: st.DrawFn, from_: list[str]) -> Pattern:
    items = draw(st.lists(st.sampled_from(from_), min_size=1, max_size=3, unique=True))
    items.sort(key=lambda item: item != "-")  # a hyphen comes first
    negation = draw(st.sampled_from(["", "^"]))
    if negation and r"\P{Lu}" in items:
        # as an alternative to a single character the package `regex` (2026.11.15) loses letters of such a
        # class: (?i)[^a\P{Lu}] matches "b", (?i)(a|[^a\P{Lu}]) does not; Rust's regex takes both, as ours
        items = [r"\P{Lu}"]
    # set operators are tested apart: the two dialects bind them differently
    return same(f"[{negation}{''.join(items)}]")


anchors = st.sampled_from(
    [
        same("^"),
        Pattern("(?-m:$)", r"\Z"),
        same(r"\A"),
        Pattern(r"\z", r"\Z"),
        same(r"\b"),
        same(r"\B"),
        same("(?m:^)"),
        same("(?m:$)"),
    ]
)
counts = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}", "{2,3}", "{1,2}?"])


@st.composite
def sequences(draw: st.DrawFn, parts: st.SearchStrategy[Pattern]) -> Pattern:
    found = draw(st.lists(parts, min_size=0, max_size=4))
    return Pattern("".join(p.ours for p in found), "".join(p.theirs for p in found))


@st.composite
def alternatives(draw: st.DrawFn, parts: st.SearchStrategy[Pattern]) -> Pattern:
    found = draw(st.lists(parts, min_size=1, max_size=3))
    return Pattern("|".join(p.ours for p in found), "|".join(p.theirs for p in found))


@st.composite
def groups(draw: st.DrawFn, inner: st.SearchStrategy[Pattern], heads: st.SearchStrategy[str]) -> Pattern:
    body = draw(alternatives(sequences(inner)))
    return body.within(
        f"({draw(heads)}", ")" + draw(st.sampled_from(["", "", "*", "+", "?", "{0,2}", "{2}"]))
    )


@st.composite
def repeated(draw: st.DrawFn, inner: st.SearchStrategy[Pattern]) -> Pattern:
    return draw(inner).within("", draw(counts))


def patterns(*, with_anchors: bool = False, with_properties: bool = False) -> st.SearchStrategy[Pattern]:
    """Without properties for the standard library's `re`, which does not know them; with them for the package
    `regex`, where flags of a group may leak out of it, so groups have none then.
    """
    members = CLASS_ITEMS + (CLASS_PROPERTIES if with_properties else [])
    characters = st.one_of(
        literals, literals, perl, classes(members), *([properties] if with_properties else [])
    )
    leaves = st.one_of(characters, repeated(characters), *([anchors] if with_anchors else []))
    heads = st.sampled_from(
        ["", "?:"] if with_properties else ["", "?:", "?i:", "?s:", "?-i:", "?is:", "?m:"]
    )
    whole = alternatives(sequences(st.recursive(leaves, lambda inner: groups(inner, heads), max_leaves=8)))
    return st.builds(Pattern.within, whole, st.sampled_from(["", "", "(?i)", "(?s)", "(?im)"]), st.just(""))
