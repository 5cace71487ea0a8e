"""Real schemas: those in the wheel of check-jsonschema, and a part of those in cfn-lint.

Which of them are refused is in ratchets/real.json. Of the others random texts are written, which must be
valid.
"""

from __future__ import annotations

import json
import random
import zipfile

import jsonschema

from lab.oracles.json_schema.expressions import translated
from lab.oracles.json_schema.schema_engine import COMPACT, Engine, Refused
from lab.system.fetch import pypi_wheel
from tests.controllers.json_schema import ratchet
from tests.controllers.json_schema.test_random import walk
from tests.controllers.json_schema.test_suite import RATCHETS

#: every so many of the schemas of cfn-lint
STEP = 20


def schemas() -> dict[str, bytes]:
    """The texts, by name."""
    found: dict[str, bytes] = {}
    places = {
        "check-jsonschema": ("check_jsonschema/builtin_schemas/vendor/", 1),
        "cfn-lint": ("cfnlint/data/schemas/resources/", STEP),
    }
    for package, (folder, step) in places.items():
        with zipfile.ZipFile(pypi_wheel(package)) as wheel:
            names = sorted(
                name for name in wheel.namelist() if name.startswith(folder) and name.endswith(".json")
            )
            found |= {f"{package}: {name.removeprefix(folder)}": wheel.read(name) for name in names[::step]}
    return found


def test_real_schemas(engine: Engine) -> None:
    outcomes: dict[str, str] = {}
    finished = 0
    for name, text in schemas().items():
        try:
            engine.compile(text, COMPACT)
        except Refused:
            outcomes[name] = "refused"
            continue
        outcomes[name] = "good"
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(translated(schema))
        for seed in range(1):
            made = walk(engine, random.Random(seed))
            if made is not None:
                finished += 1
                assert validator.is_valid(json.loads(made)), (name, made)
    assert len(outcomes) > 100 and finished > 40
    ratchet.check(RATCHETS / "real.json", outcomes)
