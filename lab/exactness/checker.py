"""Checks random cases of one engine: the campaign `exactness`, and its short form in the tests."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aicirt.wasm import Program
from lab.exactness.cases import SOURCES
from lab.exactness.defects import KNOWN
from lab.exactness.languages import Valid
from lab.exactness.walk import Case, Result, Walk, check
from lab.oracles.json_schema.compare import walk_along
from lab.oracles.json_schema.expressions import translated
from lab.oracles.json_schema.judge import Judge
from lab.oracles.json_schema.peer import Pair, pair
from lab.oracles.json_schema.schema_engine import SPACED, Engine, Refused, build
from lab.oracles.json_schema.schemas import MoreSchemas, ObjectSchemas, Schemas
from lab.oracles.json_schema.values import compare_values
from lab.runners.host import Vocab

KINDS = (*SOURCES, "json_schema")
#: pieces of JSON, and parts of characters and escapes
_PIECES = [
    '", "',
    '": ',
    "\\u00",
    "\\n",
    "true",
    "null",
    '{"',
    '"}',
    "]}",
    "é",
    "ab",
    "x-1",
    "00",
    "-1",
    ".5",
]
_PARTS = [b"\xc3", b'b"', b'"\xc3', b"\xf0\x9f"]
#: of each schema, so many are compared
_VALUES = 6

Check = Callable[[random.Random], tuple[Case, Result]]


class _Schemas:
    """Random schemas. `jsonschema` judges texts and values; masks are compared with those of llguidance."""

    def __init__(self, program: Program, both: Pair, engine: Engine) -> None:
        self._program, self._engine, self._both = program, engine, both
        tokens = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in _PIECES] + _PARTS
        tokens = list(dict.fromkeys(tokens))
        self._vocab = Vocab([*tokens, b"<eos>"], eos=[len(tokens)])

    def check(self, rng: random.Random) -> tuple[Case, Result]:
        source = rng.choice((Schemas, ObjectSchemas, MoreSchemas))(rng)
        schema = source.schema()
        judged = not isinstance(source, MoreSchemas)  # `jsonschema` does not know its formats and expressions
        argument = json.dumps({"schema": schema, "whitespace": "spaced"})
        language = Valid(translated(schema))
        case = Case(argument, self._vocab, language, kind="json_schema")
        try:
            self._engine.compile(schema, SPACED)
        except Refused as refused:
            result = Result(refused=True)
            unsatisfiable = "no value meets" in str(refused)
            result.counts["unsatisfiable" if unsatisfiable else "not supported"] += 1
            values = [source.value(schema) for _ in range(_VALUES)] if unsatisfiable and judged else []
            if valid := [value for value in values if language.valid(json.dumps(value).encode())]:
                result.flaws.append(f"the schema is refused, but {json.dumps(valid[0])} is valid")
            return case, result
        result = Walk(case, self._program, rng, ()).run()
        if judged:
            counts, flaws = compare_values(self._engine, source, schema, _VALUES)
            result.counts.update({f"{name} values": count for name, count in counts.items()})
            result.flaws += flaws
        if not isinstance(schema, bool) and not result.flaws:
            self._compare(rng, source, schema, result)
        return case, result

    def _compare(
        self, rng: random.Random, source: Schemas, schema: dict[str, object], result: Result
    ) -> None:
        judge = Judge(self._both, self._engine)
        refused = judge.compile(schema)
        if refused:
            result.counts["llguidance: refuses"] += "theirs" in refused
            return
        walk_along(judge, rng, source, schema)
        result.masks += judge.masks
        result.counts["llguidance: masks"] += judge.masks
        result.counts.update({f"llguidance: {name}": count for name, count in judge.classes.items()})
        result.flaws += [f"our mask and that of llguidance differ: {one}" for one in judge.unknown]


@contextmanager
def checker(kind: str, program: Program) -> Iterator[Check]:
    """Yields a function that draws a case of an engine from a random generator, and checks it."""
    if kind == "json_schema":
        with tempfile.TemporaryDirectory() as folder, pair(Path(folder)) as both:
            yield _Schemas(program, both, Engine(build(Path(folder)))).check
    else:
        source = SOURCES[kind]()
        with closing(source):
            yield lambda rng: check(source.draw, kind, program, rng, KNOWN)
