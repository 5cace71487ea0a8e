"""How many source files a step runs through: what is read to understand a step, or to make it faster."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

from pyaici import LlamaEngine, LlamaModel
from pyaici.engines.engine import Request, TokensAppended
from tests.pyaici.client.step_counts import Meter, Pair
from tests.pyaici.engines.batching.support import byte_vocabulary

ROOT = Path(__file__).resolve().parents[4]
#: most files that the engine's side runs, that the worker runs, and that either does; they may only fall
LIMITS = {"client": 18, "worker": 12, "either": 27}
#: steps before the counted ones, and counted ones
_WARM_UP, _COUNTED = 8, 4


class Files(Meter):
    """Collects the files whose functions are called while a side runs."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, set[str]] = {"client": set(), "worker": set()}

    def profile(self, frame: FrameType, event: str, _arg: object) -> None:
        """Notes a call; for `sys.setprofile`."""
        if self.side and event == "call":
            self._found[self.side].add(frame.f_code.co_filename)

    def sources(self) -> dict[str, list[str]]:
        """Returns the files of aicirt and pyaici that each side has run, relative to the root."""
        return {
            side: sorted(
                name.removeprefix(f"{ROOT}/")
                for name in names
                if name.startswith((f"{ROOT}/aicirt/", f"{ROOT}/pyaici/"))
            )
            for side, names in self._found.items()
        }


def test_a_step_under_a_regex_runs_through_few_files(tiny: LlamaModel) -> None:
    """In each counted step the regex allows some tokens, and one of them is sampled."""
    files, vocabulary = Files(), byte_vocabulary()
    with Pair(files, vocabulary) as pair, pair.client():
        with LlamaEngine(tiny, pair.runtime, vocabulary=vocabulary) as engine:
            engine.add(Request([1, 2, 3], "regex", "[a-z]+"), pair.place("regex", "[a-z]+"))
            for step in range(_WARM_UP + _COUNTED):
                files.switch("client")
                sys.setprofile(files.profile if step >= _WARM_UP else None)
                events = engine.step()
                files.switch("")
                sys.setprofile(None)
                assert isinstance(events[-1], TokensAppended)
    found = files.sources()
    counts = {side: len(names) for side, names in found.items()}
    counts["either"] = len(set().union(*found.values()))
    assert all(0 < counts[side] <= limit for side, limit in LIMITS.items()), (counts, found)
    page = (ROOT / "docs" / "structure.md").read_text()
    section = page.partition("\n## A step, file by file\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`((?:aicirt|pyaici)/[^`]+)`", section)) == set().union(*found.values())
