"""The grammar of C: real sources are texts of it, damaged ones are not."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
from pycparser import c_parser

from tests.controllers.lr1.c_sources import KERNEL, MUSL, library_sources, preprocess
from tests.controllers.lr1.conftest import Bundled
from tests.controllers.lr1.recognizer import Recognizer
from tests.ratchet import check_ratchet
from tests.thorough import cases

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def c(bundled: Bundled) -> Recognizer:
    return bundled("c.y")


def test_it_has_no_warnings(c: Recognizer) -> None:
    assert c.warnings == ""


def test_c_library_sources(c: Recognizer) -> None:
    """Refused sources use macros that are not C by themselves."""
    results = {str(path.relative_to(MUSL)): c.accepts(path.read_bytes()) for path in library_sources()}
    check_ratchet(HERE / "c_library.json", results)


def test_kernel_headers(c: Recognizer) -> None:
    headers = sorted(KERNEL.rglob("*.h"))
    results = {str(path.relative_to(KERNEL)): c.accepts(path.read_bytes()) for path in headers}
    check_ratchet(HERE / "c_headers.json", results)


def test_preprocessed_c_library_sources(c: Recognizer, tmp_path: Path) -> None:
    """All of them are C."""
    sources = library_sources()[:: cases(18, 6)]
    assert len(sources) > cases(50, 150)
    for path, text in zip(sources, preprocess(sources, tmp_path), strict=True):
        assert c.accepts(text), path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#define x(y) \\\n y // not \\\n closed ' \"\n/* nor \n this */ ;",
        '#include <a> /* a\nb */\n#define t "/*"\nint x;\n  # error don\'t\n',
        "a b; a *b, **c; a (b); a (*b)(a, a *, a (*)(a));",
        "a f(a, b) a b; int c; { return a * b; }",
        "static const struct { int a : 3, : 0; union { b c; }; b; } d[] = { [1] = { .a = 1 }, { 2, } };",
        "enum a { b, c = 1 << 2, }; enum a d;",
        "void f(int n, int a[static n], int b[const *], int c[*], ...);",
        "int f(int (a), int (*)(int), int (int), int (*)[3], int []);",
        '_Static_assert(sizeof(a *) == 8, L"x" "y"); _Alignas(16) _Thread_local _Atomic(int) x;',
        "_Atomic int y;",
        "int a <: 3 :> = <% 1 %>;",
        "double a[] = { 1., .5, 1e5, 0x1p-3, 0x.8P1f, 1.5L, 017, 0xFFull, 'a', L'\\x41', '\\'' };",
        "int a = u'\\u00e9';",
        "typeof(x) y; __typeof__(int *) z; __extension__ typedef long long b;",
        'int f(void) __asm__("g") __attribute__((noreturn, format(printf, 1, 2), const));',
        'asm("nop"); int \\\nx; int caf\u00e9, \\u00e9t\\U000000e9;',
        "extern inline __attribute__((unused)) a *restrict const *f(register a *volatile b);",
    ],
)
def test_declarations(c: Recognizer, text: str) -> None:
    assert c.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "a b = c; a *d; a *e = f, g = {1}; a *h[] = {0}; a const *i; a *const j = 0;",
        "static a k; a **l, m[3];",
        "a * b; a(b); (a)(b); (a)(b, c); (a)(); (a) b; (a) -b; (a)++; (a)[1]; (a)->b = 1; (a *) b; (a **) b;",
        "(a)(unsigned char) b; (a const *) b; (a (*)(int)) b; (a[]){1, 2}; (a[2]){1}; (a){.b = 1}.b;",
        "sizeof (a) * b;",
        "sizeof a; sizeof(a *); sizeof(int[3]); sizeof (a)[1]; sizeof(int){1}; _Alignof(a *);",
        "-(a) - (b) & (c);",
        "if (a) if (b) c; else d; else ; for (a i = 0; i < 3; i++) ;",
        "for (;;) break; for (a *p = b; p; p++) {}",
        "do x--; while (x); switch (a) { case 1: case 2 ... 3: b; default: ; }",
        "goto l; l: m: ; goto *a; x = &&l;",
        "return (a) ? b : c, d; x = y = z += 1; x ?: y; ({ int a = 1; a; }); __label__ q, r; return;",
        'asm volatile ("x" : "=r"(a), [n] "+m"(*b) : "i"(1) : "memory"); asm goto ("" : : : : l);',
        "_Generic(x, int: 1, a *: 2, default: 3); va_arg(p, a *); offsetof(struct a, b[1].c); ;",
        'char *s = "a" u8"\\0\\x41\\\\"; int z = \'ab\'; __extension__ int w; __extension__ (a) b;',
        "struct a { int b; } c = { b: 1 }; int d[3] = { [0 ... 1] = 2, [2] = { 1 } }; enum { e } f;",
    ],
)
def test_statements(c: Recognizer, text: str) -> None:
    assert c.accepts(f"void f(void) {{ {text} }}")
    assert c.accepts(f"int g(void) {{ if (1) {{ {text} }} return 0; }}")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "f(void) { }",
            "int",
            "int x",
            "int x = ;",
            "int f( { }",
            "x = 1;",
            "static x = 1;",
            "int int x y;",
            "{ }",
        ),
        *(
            "struct { int; ",
            "struct a { x = 1; };",
            "enum { };",
            "enum { 1 };",
            "int a[;",
            "int a[1",
            "int (x;",
        ),
        *("#define x\n}", "int x; # define y", "/* int x;", 'int x; "a";', "int a = 1..2;", "int a = 0xg;"),
        *("int a = 08;", "int a = 1a;", "int a = '';", "int a = '\\q';", 'char *a = "\n";', "int a = 1e;"),
        *("int a = 0x1e+1;", "int 1a;", "typedef;;int", "int f(int x,);", "int f(...)", "a b c;", "int @;"),
    ],
)
def test_invalid_declarations(c: Recognizer, text: str) -> None:
    assert not c.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x",
            "x +;",
            "x y z;",
            "a + b = c;",
            "(a) = ;",
            "if x y;",
            "if (x);  else else;",
            "else x;",
            "for (;) x;",
        ),
        *(
            "while () x;",
            "do x; while (x)",
            "switch x {}",
            "case: x;",
            "goto;",
            "goto 1;",
            "return return;",
            "x[;",
        ),
        *(
            "x[];",
            "f(,);",
            "f(a,);",
            "f(int);",
            "(int) ;",
            "(a *);",
            "sizeof;",
            "x ? y;",
            "x : y : z",
            "1 = int;",
        ),
        *(
            "int x = {1;",
            "int x y;",
            "x->1;",
            "x.;",
            "++;",
            "x = {1};",
            "l:",
            "struct;",
            "(a",
            "a)",
            "{",
            "}",
            "({ })",
        ),
        *(
            "break 1;",
            "asm();",
            "a *b c;",
            "a * = b;",
            "int *a *b;",
            "'a",
            '"a',
            "x \\ y;",
            "a(b){1};",
            "(a+b){1};",
        ),
    ],
)
def test_invalid_statements(c: Recognizer, text: str) -> None:
    assert not c.accepts(f"void f(void) {{ {text} }}")


# -- damaged sources -------------------------------------------------------------------------------

#: for an oracle that has no extensions
_PLAIN = [
    *("-U__GNUC__", "-D__attribute__(x)=", "-D__inline=inline", "-D__restrict=restrict", "-D_Noreturn="),
    "-D__builtin_va_list=int",
]
_SHORT = (
    "random",
    "tfind",
    "tsearch",
    "lsearch",
    "hsearch",
    "wcscasecmp",
    "wcswidth",
    "rand_r",
    "strtod",
    "insque",
)
_LEXEME = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\.?\d[\w.]*|\.\.\.|<<=|>>=|->|\+\+|--|<<|>>'
    r"|[<>=!+\-*/%&|^]=|&&|\|\||\S"
)
#: what the oracle refuses and the grammar has: a ?: b, &&label, 1j; and `int ;`, which is C
_EXTENSION = re.compile(
    r"\?\s*:|(?:[(,;=&*{}!:?<>+\-]|return)\s*&&|\d[ij]\b|\b(?:int|long|short|char|unsigned|double)\s*;"
)


def is_c(text: str) -> bool:
    """According to an independent parser, which keeps a table of the names of types."""
    try:
        c_parser.CParser().parse(text)
    except (c_parser.ParseError, AssertionError, AttributeError):
        return False
    return True


def could_be_c(text: str, place: int) -> bool:
    """With other meanings of one or two names near a place, each that of a type or of a variable."""
    names = [m.span() for m in _LEXEME.finditer(text) if re.match(r"[A-Za-z_]", m[0])]
    near = sorted(names, key=lambda span: abs(span[0] - place))[:6]
    for count in (1, 2):
        for spans in itertools.combinations(sorted(near), count):
            for words in itertools.product(("a_type__", "a_name__"), repeat=count):
                changed = text
                for (begin, end), word in reversed([*zip(spans, words, strict=True)]):
                    changed = changed[:begin] + word + changed[end:]
                if is_c("typedef int a_type__;\n" + changed):
                    return True
    return False


def damage(text: str, rng: random.Random) -> tuple[str, int]:
    """Takes a lexeme of a function away, repeats one there, or swaps two; and where."""
    body = re.search(r"\)\s*\{", text)
    assert body is not None
    spans = [m.span() for m in _LEXEME.finditer(text, body.start())]
    number = rng.randrange(len(spans) - 1)
    (begin, end), (begin2, end2) = spans[number], spans[number + 1]
    match rng.choice("dis"):
        case "d":
            return text[:begin] + text[end:], begin
        case "i":
            first, last = rng.choice(spans)
            return f"{text[:begin]}{text[first:last]} {text[begin:]}", begin
        case _:
            return f"{text[:begin]}{text[begin2:end2]} {text[begin:end]} {text[end2:]}", begin


def test_damaged_sources_are_refused(c: Recognizer, tmp_path: Path) -> None:
    """Sources that the oracle refuses are refused, unless some meaning of the names would make them C."""
    sources = [path for path in library_sources() if path.stem in _SHORT]
    texts = [text for text in preprocess(sources, tmp_path, _PLAIN) if len(text) < 9000 and is_c(text)]
    assert len(texts) >= 5 and all(c.accepts(text) for text in texts)
    rng, refused, by_meaning = random.Random(5), 0, 0
    for _ in range(cases(60, 160)):
        text, place = damage(rng.choice(texts), rng)
        if is_c(text) or _EXTENSION.search(text, max(0, place - 20)):
            continue
        if c.accepts(text):
            by_meaning += 1
            assert could_be_c(text, place), text[max(0, place - 60) : place + 40]
        refused += 1
    assert refused > cases(30, 80) and by_meaning < refused // 20
