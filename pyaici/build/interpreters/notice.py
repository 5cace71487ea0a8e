"""Licence notices of the interpreters, for distributors of the modules.

The source distributions contain no notices for the interpreters' sources, but nearly every source file
begins with one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..cache import Cache, digest
from ..errors import BuildError
from .languages import LANGUAGES, Language
from .manifest import Manifest, is_interpreter

_COPYRIGHT = re.compile(r"^[\s*/]*(Copyright \([cC]\) .*?)[\s*/]*$", re.MULTILINE)
_PERMISSION = re.compile(r"Permission is hereby granted, free of charge.*?\n[\s*]*(?=\*/)", re.DOTALL)


def notices(folders: Iterable[Path], cache: Cache) -> dict[str, Path]:
    """Returns the notices of the interpreters whose glue is in these folders.

    Maps the name that each notice should get to its file in the cache.

    Raises:
        MissingSources: the sources of an interpreter cannot be fetched.
    """
    made = {}
    for folder in filter(is_interpreter, folders):
        language = LANGUAGES[Manifest.read(folder, list(LANGUAGES)).interpreter]
        path = cache.artifact(digest(["notice", language.sdist.sha256], Path(), []), ".txt")
        if not path.exists():
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(_notice(language, cache))
            unfinished.replace(path)
        made[f"{language.sdist.title}.txt"] = cache.used(path)
    return made


def _notice(language: Language, cache: Cache) -> str:
    """Returns all copyright lines of the sources and headers, and the first permission among them."""
    with tempfile.TemporaryDirectory(dir=cache.cache) as scratch:
        tree = language.sdist.unpack(cache, language.prefix, Path(scratch) / "tree")
        sources = language.sources(tree)
        beside = {path for source in sources for path in source.parent.glob("*.h")}
        texts = [path.read_text(errors="replace") for path in (*sources, *sorted(beside))]
    owners = sorted({owner for text in texts for owner in _COPYRIGHT.findall(text)})
    permission = next((found[0] for text in texts if (found := _PERMISSION.search(text))), None)
    if permission is None or not owners:
        raise BuildError(
            f"the sources of {language.sdist.title} have no licence text that the build can find"
        )
    lines = [re.sub(r"^[ *]+", "", line).rstrip() for line in permission.rstrip().splitlines()]
    return "\n".join(
        [f"{language.sdist.title}, from its sources", "", *owners, "", *lines, ""],
    )
