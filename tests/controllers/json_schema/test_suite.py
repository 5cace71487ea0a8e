"""JSON-Schema-Test-Suite, from the source distribution of `jsonschema`.

No invalid instance is accepted, in any order of its properties. A valid one is to be accepted in one of them;
which ones are not, and which schemas are refused, is in ratchets/.
"""

from __future__ import annotations

import functools
import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import jsonschema_specifications
import pytest

from lab.oracles.json_schema.orders import orders
from lab.oracles.json_schema.schema_engine import Engine, Refused
from lab.system.fetch import pypi_source
from tests.controllers.json_schema import ratchet

RATCHETS = Path(__file__).parent / "ratchets"
DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@functools.cache
def suite() -> dict[str, dict[str, Any]]:
    """The groups of each file, by draft and name."""
    found: dict[str, dict[str, Any]] = {draft: {} for draft in DIALECTS}
    with tarfile.open(pypi_source("jsonschema")) as archive:
        for member in archive:
            _, _, path = member.name.partition("/json/tests/")
            draft, _, name = path.partition("/")
            if draft in DIALECTS and name.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                found[draft][name.removesuffix(".json")] = json.load(file)
    return found


@functools.cache
def remotes() -> dict[str, Any]:
    """The documents to which schemas of the suite refer, and the metaschemas, by URI."""
    found = {
        uri: jsonschema_specifications.REGISTRY.contents(uri) for uri in jsonschema_specifications.REGISTRY
    }
    with tarfile.open(pypi_source("jsonschema")) as archive:
        for member in archive:
            _, _, path = member.name.partition("/json/remotes/")
            if path.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                found[f"http://localhost:1234/{path}"] = json.load(file)
    return found


def documents_for(schema: Any) -> dict[str, Any]:
    """Returns the documents whose file names occur in the schema or in one of these documents."""
    texts, found = [json.dumps(schema)], dict[str, Any]()
    while texts:
        text = texts.pop()
        for uri, document in remotes().items():
            # each schema names its metaschema, which hardly any of them needs
            ends = [uri, "/".join(uri.split("/")[-2:])] if "json-schema.org" in uri else []
            needed = [f'"$ref": "{end}' for end in ends] or [uri.rpartition("/")[2]]
            if uri not in found and any(map(text.__contains__, needed)):
                found[uri] = document
                texts.append(json.dumps(document))
    return found


def outcomes(engine: Engine, draft: str) -> dict[str, str]:
    """Returns the outcome of each group or case, by name."""
    found: dict[str, str] = {}
    for name, groups in suite()[draft].items():
        for group in groups:
            where = f"{name}: {group['description']}"
            schema = group["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": DIALECTS[draft], **schema}
            any_valid = any(test["valid"] for test in group["tests"])
            try:
                engine.compile(schema, documents=documents_for(schema))
            except Refused as refused:
                nothing = "no value meets this schema" in str(refused)
                assert not (nothing and any_valid), where
                found[where] = "good" if nothing else "refused"
                continue
            for test in group["tests"]:
                accepted = any(
                    engine.accepts(json.dumps(data, ensure_ascii=False))
                    for data in itertools.islice(orders(test["data"]), 800)
                )
                assert test["valid"] or not accepted, f"{where}: {test['description']} is accepted"
                found[f"{where}: {test['description']}"] = (
                    "good" if accepted == test["valid"] else "refuses valid"
                )
    return found


@pytest.mark.parametrize("draft", DIALECTS)
def test_suite(engine: Engine, draft: str) -> None:
    found = outcomes(engine, draft)
    assert len(found) > 600
    ratchet.check(RATCHETS / f"{draft}.json", found)
