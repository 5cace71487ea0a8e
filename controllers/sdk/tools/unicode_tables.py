"""Writes ``src/regex/unicode_data.cpp``: the Unicode properties that the regex engine knows, packed.

    pip install regex fonttools
    python controllers/sdk/tools/unicode_tables.py > controllers/sdk/src/regex/unicode_data.cpp

The tables are committed and not made at build time: the standard library's `unicodedata` has neither scripts
nor derived properties, and its Unicode version follows the Python that happens to build, so two machines
would build controllers that accept different texts. The data comes from the installed `regex` package; the
names of scripts come from `fontTools`. Both must be of the same Unicode version.

Format, little values first (``unicode.cpp`` reads it). A varint holds 7 bits a byte, the last byte below 128.

- categories: runs that cover all code points. A byte ``category | length << 5``; length 0: a varint follows.
- scripts: runs that cover all code points: a byte for the script (0 is Unknown), the length as a varint.
- properties: per property the mask of categories it is built on (4 bytes), the number of ranges (varint), and
  ranges (gap, length - 1) as varints. A code point has the property if exactly one of the two says so.
- folds: runs of code points whose simple case folding is another code point: gap to the previous run's start,
  length, ``delta << 1 | (step - 1)`` with a zigzag delta. Step 2 takes every second code point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import regex
from fontTools.unicodedata import Scripts, unidata_version
from regex import _regex

LIMIT = 0x110000
CATEGORIES = (
    "Lu Uppercase_Letter, Ll Lowercase_Letter, Lt Titlecase_Letter, Lm Modifier_Letter, Lo Other_Letter, "
    "Mn Nonspacing_Mark, Mc Spacing_Mark, Me Enclosing_Mark, Nd Decimal_Number, Nl Letter_Number, "
    "No Other_Number, Pc Connector_Punctuation, Pd Dash_Punctuation, Ps Open_Punctuation, "
    "Pe Close_Punctuation, Pi Initial_Punctuation, Pf Final_Punctuation, "
    "Po Other_Punctuation, Sm Math_Symbol, Sc Currency_Symbol, Sk Modifier_Symbol, So Other_Symbol, "
    "Zs Space_Separator, Zl Line_Separator, Zp Paragraph_Separator, Cc Control, Cf Format, Cs Surrogate, "
    "Co Private_Use, Cn Unassigned"
)
GROUPS = {
    "LC Cased_Letter": "Lu Ll Lt",
    "L Letter": "Lu Ll Lt Lm Lo",
    "M Mark Combining_Mark": "Mn Mc Me",
    "N Number": "Nd Nl No",
    "P Punctuation Punct": "Pc Pd Ps Pe Pi Pf Po",
    "S Symbol": "Sm Sc Sk So",
    "Z Separator": "Zs Zl Zp",
    "C Other": "Cc Cf Cs Co Cn",
}
PROPERTIES = (
    "Alphabetic Alpha, Lowercase Lower, Uppercase Upper, White_Space Space, Cased, Case_Ignorable CI, "
    "Ideographic Ideo, Math, Dash, Hex_Digit Hex, Diacritic Dia, ID_Start IDS, ID_Continue IDC, "
    "XID_Start XIDS, XID_Continue XIDC, Default_Ignorable_Code_Point DI, Emoji, "
    "Emoji_Presentation EPres, Emoji_Modifier EMod, Emoji_Modifier_Base EBase, Emoji_Component EComp, "
    "Extended_Pictographic ExtPict, Regional_Indicator RI"
)

Ranges = list[tuple[int, int]]


def members(pattern: str) -> list[bool]:
    """For each code point: does the one-character pattern match it?"""
    match = regex.compile(pattern).match
    return [match(chr(code)) is not None for code in range(LIMIT)]


def ranges(flags: Iterable[bool]) -> Ranges:
    found: Ranges = []
    for code, flag in enumerate(flags):
        if flag and found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        elif flag:
            found.append((code, code))
    return found


def runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """(value, length) of the maximal runs of equal values."""
    start = 0
    for code in range(1, len(values) + 1):
        if code == len(values) or values[code] != values[start]:
            yield values[start], code - start
            start = code


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def labelled(labels: list[str], pattern: Callable[[str], str]) -> list[int]:
    """For each code point the index of the label whose pattern matches it, or 0."""
    values = [0] * LIMIT
    for index, label in enumerate(labels):
        for low, high in ranges(members(pattern(label))):
            values[low : high + 1] = [index] * (high - low + 1)
    return values


def pack_categories(categories: list[int]) -> bytes:
    out = b""
    for value, length in runs(categories):
        out += bytes([value | length << 5]) if length < 8 else bytes([value]) + varint(length)
    return out


def pack_scripts(scripts: list[int]) -> bytes:
    return b"".join(bytes([value]) + varint(length) for value, length in runs(scripts))


def pack_property(flags: list[bool], categories: list[int]) -> bytes:
    """A range costs about two bytes, so each category is taken into the base if that gives fewer ranges."""
    pairs = list(zip(flags, categories, strict=True))

    def difference(mask: int) -> Ranges:
        return ranges(flag != bool(mask >> category & 1) for flag, category in pairs)

    totals, having = Counter(categories), Counter(category for flag, category in pairs if flag)
    base, best = 0, difference(0)
    for category in sorted(having, key=lambda c: -having[c]):
        with_it = difference(base | 1 << category) if 2 * having[category] > totals[category] else best
        if with_it is not best and len(with_it) <= len(best):
            base, best = base | 1 << category, with_it
    out, last = base.to_bytes(4, "little") + varint(len(best)), 0
    for low, high in best:
        out += varint(low - last) + varint(high - low)
        last = high + 1
    return out


def simple_folds() -> list[tuple[int, int]]:
    """(code point, the least code point that case folding makes equal to it) where the two differ.

    Without the Turkic mappings, which would join I with dotless i.
    """
    flags = int(regex.UNICODE | regex.IGNORECASE)
    turkic = {0x130, 0x131}
    found = []
    for code in range(LIMIT):
        same = {ord(c) if isinstance(c, str) else c for c in _regex.get_all_cases(flags, code)} - turkic
        if code not in turkic and min(same) != code:
            found.append((code, min(same)))
    return found


def pack_folds(folds: list[tuple[int, int]]) -> bytes:
    """Greedy runs of equal distance and equal step."""
    out, last, at = b"", 0, 0
    while at < len(folds):
        start, target = folds[at]
        step = 2 if at + 1 < len(folds) and folds[at + 1][0] == start + 2 else 1
        length = 1
        while folds[at + length : at + length + 1] == [(start + length * step, target + length * step)]:
            length += 1
        step = step if length > 1 else 1
        delta = target - start
        zigzag = delta << 1 if delta >= 0 else (-delta << 1) - 1
        out += varint(start - last) + varint(length) + varint(zigzag << 1 | (step - 1))
        last, at = start, at + length
    return out


def c_bytes(name: str, data: bytes) -> str:
    lines, line = [], ""
    for value in data:
        if len(line) + len(str(value)) + 1 > 110:
            lines.append(line)
            line = ""
        line += f"{value},"
    return f"const std::uint8_t {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def c_names(name: str, entries: list[list[str]]) -> str:
    """Names as one string: the spellings of an entry are separated by spaces, entries by line ends."""
    spelled = [" ".join(dict.fromkeys(n.lower().replace("_", "") for n in names)) for names in entries]
    return f"const char {name}[] =\n" + "\n".join(f'    "{line}\\n"' for line in spelled) + ";\n"


def main() -> None:
    categories = [entry.split() for entry in CATEGORIES.split(", ")]
    scripts = [["Zzzz", "Unknown"], *([code, name] for code, name in Scripts.NAMES.items() if code != "Zzzz")]
    properties = [entry.split() for entry in PROPERTIES.split(", ")]
    category_of = labelled([names[0] for names in categories], lambda n: rf"\p{{gc={n}}}")
    category_of[0xD800:0xE000] = [[n[0] for n in categories].index("Cs")] * 0x800
    script_of = labelled([names[1] for names in scripts], lambda n: rf"\p{{Script={n}}}")
    groups = [
        (names.split(), sum(1 << [n[0] for n in categories].index(m) for m in members_.split()))
        for names, members_ in GROUPS.items()
    ]
    packed = [pack_property(members(rf"\p{{{names[0]}}}"), category_of) for names in properties]
    print("// Made by controllers/sdk/tools/unicode_tables.py, which describes the format; do not edit.")
    print('#include "unicode.hpp"\n\nnamespace aici::regex {\n')
    print(f'const char kUnicodeVersion[] = "{unidata_version}";\n')
    print(c_names("kCategoryNames", categories))
    print(c_names("kGroupNames", [names for names, _ in groups]))
    print("const std::uint32_t kGroupMasks[] = {" + ", ".join(str(mask) for _, mask in groups) + "};\n")
    print(c_names("kScriptNames", scripts))
    print(c_names("kPropertyNames", properties))
    print(c_bytes("kCategoryRuns", pack_categories(category_of)))
    print(c_bytes("kScriptRuns", pack_scripts(script_of)))
    print(c_bytes("kProperties", b"".join(packed)))
    print(c_bytes("kFolds", folds := pack_folds(simple_folds())))
    print(f"const std::uint32_t kFoldsSize = {len(folds)};\n\n}}  // namespace aici::regex")


if __name__ == "__main__":
    main()
