"""`aici grammar`: tries out a grammar without a model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, ControllerError, counted
from aicirt.system.terminal import show, show_json
from pyaici.bundled import find_controller, find_grammar
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from pyaici.testing.texts import Place, Texts, Verdict

#: suffix of a file -> controller that reads it
KINDS = {".y": "lr1", ".kbnf": "kbnf", ".gbnf": "gbnf", ".lark": "lark", ".json": "json_schema"}

_MORE = """
The controller for the kind of grammar reads it, in the same sandbox and with the same limits as beside a
model. It is then asked, byte by byte, which bytes may follow.
"""
_EXAMPLES = """\
  aici grammar check answer.kbnf                       prints errors and warnings
  aici grammar test answer.kbnf --accept "yes." --reject "yes"
  aici grammar sample answer.kbnf -n 5                 prints texts that a model might write
"""
_CHECK_MORE = """
Prints whether the grammar is accepted, with warnings, sizes, times, and the bytes that a text may begin with.
Exit status: 0 accepted, 1 refused.
"""
_CHECK_EXAMPLES = """\
  aici grammar check answer.kbnf
  aici grammar check c.y                               checks a bundled grammar
  aici grammar check schema.json
  aici grammar check rules.txt --kind lark
"""
_TEST_MORE = """
Prints for each text whether the grammar accepts it; if not, prints the position of the error and what the
grammar allows there. Exit status: 0 if all results are as expected, 1 if not, or if the grammar is refused.
"""
_TEST_EXAMPLES = """\
  aici grammar test json.y --accept '{"a": [1, 2]}' --reject '{"a": 1,}'
  aici grammar test c.y --accept @main.c --accept @util.c
"""
_SAMPLE_MORE = """
Prints random texts of the grammar, one JSON string per line, to show what the grammar allows. Every text can
occur; short texts are more likely. Exit status: 0, or 1 if the grammar is refused or too few texts were
completed.
"""
_SAMPLE_EXAMPLES = """\
  aici grammar sample answer.kbnf
  aici grammar sample json.y -n 20 --length 100 --seed 7
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    whole = add_command(
        commands, "grammar", check, "try out a grammar without a model", more=_MORE, examples=_EXAMPLES
    )
    actions = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_action(
        actions, "check", check, "validate a grammar and print warnings", _CHECK_MORE, _CHECK_EXAMPLES
    )
    tested = _add_action(
        actions, "test", test, "test which texts a grammar accepts", more=_TEST_MORE, examples=_TEST_EXAMPLES
    )
    for option, what in (("--accept", "accept"), ("--reject", "reject")):
        tested.add_argument(
            option,
            metavar="TEXT",
            action="append",
            default=[],
            help=f"a text that the grammar must {what}; @FILE reads it from a file; may be repeated",
        )
    sampled = _add_action(
        actions, "sample", sample, "print random texts of a grammar", _SAMPLE_MORE, _SAMPLE_EXAMPLES
    )
    sampled.add_argument("-n", type=_positive, default=10, metavar="N", help="number of texts (default: 10)")
    sampled.add_argument(
        "--length",
        type=_positive,
        default=60,
        metavar="BYTES",
        help="length from which a text is ended as soon as possible (default: 60)",
    )
    sampled.add_argument("--seed", type=int, default=1, help="seed of the random numbers (default: 1)")


def _add_action(
    actions: Any, name: str, run: Any, summary: str, more: str, examples: str
) -> argparse.ArgumentParser:
    parser = add_command(actions, name, run, summary, more=more, examples=examples)
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the grammar file (@FILE is taken, too), or the name of a bundled grammar",
    )
    parser.add_argument(
        "--kind",
        choices=sorted({*KINDS.values(), "regex"}),
        help=f"the controller that reads it (default: by the file's ending: {', '.join(KINDS)})",
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def check(arguments: argparse.Namespace) -> int:
    """Prints whether a grammar is accepted, with warnings, sizes and times."""
    kind, source = _read_grammar(arguments)
    with _open(kind, source) as texts:
        size = find_controller(kind).stat().st_size
        show(f"{arguments.file}: accepted by {kind}")
        _print_warnings(texts)
        show(f"  size     {len(source)} bytes, read by {size / 1000:.0f} kB of controller")
        show(f"  time     read in {1e3 * texts.prepared:.1f} ms, first mask in {1e3 * texts.first:.1f} ms")
        show(f"  begins   with {_shown(texts.start)}")
    return 0


def test(arguments: argparse.Namespace) -> int:
    """Prints the verdict on each text; returns 1 if one is not as expected."""
    kind, source = _read_grammar(arguments)
    cases = [(text, wanted) for wanted in ("accept", "reject") for text in getattr(arguments, wanted)]
    if not cases:
        arguments.parser.error("there is nothing to test: give texts with --accept or --reject")
    pairs = [(text, _read_value(text), wanted == "accept") for text, wanted in cases]
    wrong = 0
    with _open(kind, source) as texts:
        _print_warnings(texts)
        for name, text, wanted in pairs:
            verdict = texts.judge(text)
            wrong += verdict.accepted != wanted
            result = "ok   " if verdict.accepted == wanted else "WRONG"
            show(f"{result}  {'accepted' if verdict.accepted else 'rejected'}  {_label(name)}")
            if not verdict.accepted:
                show(f"       {_why(text, verdict)}")
    if wrong:
        show(f"{wrong} of {len(pairs)} results are not as expected")
    return 1 if wrong else 0


def sample(arguments: argparse.Namespace) -> int:
    """Prints random texts of the grammar. Raises AiciError if too few of them were completed."""
    from pyaici.testing.texts import sample_texts

    kind, source = _read_grammar(arguments)
    with _open(kind, source) as texts:
        found = sample_texts(texts, arguments.n, length=arguments.length, seed=arguments.seed)
    for text in found:
        show_json(text.decode("utf-8", "replace"), indent=None)
    if len(found) == arguments.n:
        return 0
    raise AiciError(
        f"only {len(found)} of {arguments.n} texts were completed; --length {4 * arguments.length} allows "
        "longer texts"
    )


def _read_grammar(arguments: argparse.Namespace) -> tuple[str, bytes]:
    """Returns the controller's name and its argument."""
    path = Path(arguments.file)
    if not path.exists():  # @FILE as in `aici run --arg`
        name = arguments.file.removeprefix("@")
        path = find_grammar(name) or Path(name)
    kind = arguments.kind or KINDS.get(path.suffix)
    if kind is None:
        raise AiciError(
            f"{path}: the kind of grammar is unknown; give --kind, or rename the file to end with one of: "
            + ", ".join(f"{suffix} ({name})" for suffix, name in KINDS.items())
        )
    return kind, _file(path)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error


def _open(kind: str, source: bytes) -> Texts:
    from pyaici.testing.texts import Texts

    try:
        return Texts(kind, source)
    except ControllerError as error:
        raise AiciError(f"{kind} refuses the grammar: {error.message}") from error


def _read_value(value: str) -> bytes:
    return _file(Path(value[1:])) if value.startswith("@") else value.encode("utf-8", "surrogateescape")


def _label(name: str) -> str:
    return name if name.startswith("@") else json.dumps(name, ensure_ascii=False)


def _print_warnings(texts: Texts) -> None:
    for line in texts.log.splitlines():
        show(f"  {line}")


def _why(text: bytes, verdict: Verdict) -> str:
    before = text[: verdict.good].decode("utf-8", "replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    end = "the text ends" if verdict.good == len(text) else _byte(text[verdict.good]) + " comes"
    return f"line {line}, column {column}: {end} where {_shown(verdict.place)} could come"


def _shown(place: Place) -> str:
    """Formats the possible next bytes for reading: runs of letters and digits become ranges."""
    ranges: list[list[int]] = []
    for byte in sorted(place.next):
        joins = ranges and byte == ranges[-1][1] + 1 and _is_plain(byte) == _is_plain(ranges[-1][1])
        if joins and (_is_plain(byte) or byte >= 0x80):
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    shown = [_byte(a) if a == b else f"{_byte(a)} to {_byte(b)}" for a, b in ranges]
    most = 12
    if len(shown) > most:
        shown = [*shown[:most], counted(len(shown) - most, "other")]
    if place.may_end:
        shown.append("the end")
    return ", ".join(shown) or "nothing"


def _is_plain(byte: int) -> int:
    return next((i for i, group in enumerate((b"az", b"AZ", b"09"), 1) if group[0] <= byte <= group[1]), 0)


def _byte(byte: int) -> str:
    return json.dumps(chr(byte)) if byte < 0x80 else f"byte {byte:#04x}"
